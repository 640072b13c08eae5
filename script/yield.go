package script

import (
	"runtime"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// yieldSource makes the function coroutine.yield from the machine's. That leaves registers empty if
// a resume gives fewer values than the coroutine takes, and cannot be the last call of a coroutine.
// A return from a function of Lua fills in what is missing.
const yieldSource = `local yield = ...
local function values(...) return ... end
return function(...) return values(yield(...)) end`

const errYield = "attempt to yield across metamethod/C-call boundary"

// newYield returns the function coroutine.yield. Its frames are called [G], as those of functions in
// Go, so that no error shows them.
func (s *state) newYield(machine lua.LGFunction) *lua.LFunction {
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
		return machine(L)
	}))
	L.Call(1, 1)
	yield := L.Get(-1).(*lua.LFunction)
	L.Pop(1)
	return yield
}

// isYieldable reports whether the caller, a function in Go, was called by the loop that runs a
// coroutine. The machine starts another loop for what a metamethod, a for statement or a function in
// Go calls, and cannot leave that one and come back to it.
func isYieldable() bool {
	const machine = "github.com/yuin/gopher-lua."
	var callers [16]uintptr // more than there are up to the first loop
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
