package script

import (
	"runtime"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// yieldSource wraps gopher-lua's coroutine.yield in a Lua function, whose return sets missing
// values to nil. gopher-lua's function leaves registers unset if a resume passes fewer values than
// the coroutine uses. It also fails as the last call of a coroutine.
const yieldSource = `local yield = ...
local function values(...) return ... end
return function(...) return values(yield(...)) end`

const errYield = "attempt to yield across metamethod/C-call boundary"

// newYield returns the function coroutine.yield. Its chunk has the name [G], which functions in Go
// have, so errors do not show it.
func (s *state) newYield(original lua.LGFunction) *lua.LFunction {
	L := s.lua
	f, err := L.Load(strings.NewReader(yieldSource), "[G]")
	if err != nil {
		panic(err)
	}
	L.Push(f)
	L.Push(L.NewFunction(func(L *lua.LState) int {
		if !isYieldable() {
			raise(L, errYield)
		}
		return original(L)
	}))
	L.Call(1, 1)
	yield := L.Get(-1).(*lua.LFunction)
	L.Pop(1)
	return yield
}

// isYieldable is for a function in Go. It reports whether the main loop of a coroutine has called
// that function. For calls from a metamethod, a for statement or a function in Go, gopher-lua
// starts another loop. It cannot leave such a loop and come back to it.
func isYieldable() bool {
	const machine = "github.com/yuin/gopher-lua."
	var callers [16]uintptr // the first loop is among these
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for {
		frame, more := frames.Next()
		if frame.Function == machine+"mainLoopWithContext" {
			frame, _ = frames.Next()
			return frame.Function == machine+"threadRun"
		}
		if !more {
			return false
		}
	}
}
