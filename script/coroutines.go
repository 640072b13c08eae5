package script

import (
	lua "github.com/yuin/gopher-lua"
)

const (
	// maxCoroutineDepth is the maximum number of coroutines that resume each other. Each has a Lua
	// stack of its own, and all share one Go stack.
	maxCoroutineDepth = 16
	// maxCoroutineCalls and coroutineRegisters bound a coroutine, as maxCalls and minRegisters
	// bound the main thread.
	maxCoroutineCalls  = 200
	coroutineRegisters = 256
	coroutineSteps     = 200 // price of creating one
)

// coroutineLibrary returns the coroutine library: gopher-lua's functions, metered and checked. The
// comments below say why some of them are not gopher-lua's.
func (s *state) coroutineLibrary() *lua.LTable {
	donor := lua.NewState(lua.Options{SkipOpenLibs: true}) // opening a library defines globals
	defer donor.Close()
	lua.OpenCoroutine(donor)
	theirs := donor.Get(-1).(*lua.LTable)
	original := func(name string) lua.LGFunction { return theirs.RawGetString(name).(*lua.LFunction).GFunction }
	create, resume := original("create"), s.resume(original("resume"))
	s.yield = s.newYield(original("yield")) // gopher-lua's loses values, see yield.go
	t := s.table(map[string]lua.LGFunction{
		"running": original("running"),
		"status":  coroutineStatus, // gopher-lua's reports only the resumer as "normal"
		"resume":  resume,          // gopher-lua's nests without a limit
		"create": func(L *lua.LState) int { // gopher-lua's makes an unmetered thread
			return push(L, s.thread(L, create))
		},
		"wrap": func(L *lua.LState) int { // gopher-lua's makes an unmetered thread
			thread := s.thread(L, create)
			return push(L, L.NewFunction(func(L *lua.LState) int {
				L.Insert(thread, 1)
				n := resume(L)
				if v := L.Get(-1); L.Get(-n) == lua.LFalse {
					if text, ok := plainString(v); ok {
						v = lua.LString(position(L, 1) + text)
					}
					L.Error(v, 0)
				}
				return n - 1
			}))
		},
	})
	t.RawSetString("yield", s.yield)
	return t
}

// thread creates a coroutine. Its context is the meter. gopher-lua would give it a child of the
// meter.
func (s *state) thread(L *lua.LState, create lua.LGFunction) *lua.LState {
	if f, ok := L.Get(1).(*lua.LFunction); !ok || f.IsG || f == s.yield {
		badArgument(L, 1, "Lua function expected")
	}
	s.spend(L, coroutineSteps)
	options, meter := L.Options, L.RemoveContext()
	defer func() { // create may panic
		L.Options = options
		L.SetContext(meter)
	}()
	L.Options.CallStackSize, L.Options.RegistrySize = maxCoroutineCalls, coroutineRegisters
	L.SetTop(1)
	create(L)
	thread := L.Get(-1).(*lua.LState)
	L.Pop(1)
	thread.SetContext(meter)
	return thread
}

func checkThread(L *lua.LState) *lua.LState {
	thread, ok := L.Get(1).(*lua.LState)
	if !ok {
		badArgument(L, 1, "coroutine expected")
	}
	return thread
}

func coroutineStatus(L *lua.LState) int {
	return push(L, lua.LString(status(L, checkThread(L))))
}

func status(L, thread *lua.LState) string {
	switch {
	case thread.Dead:
		return "dead"
	case thread == L:
		return "running"
	}
	for running := L; running != nil; running = running.Parent {
		if running == thread {
			return "normal"
		}
	}
	return "suspended"
}

// resume returns gopher-lua's function with a limit of the nesting.
func (s *state) resume(original lua.LGFunction) lua.LGFunction {
	return func(L *lua.LState) int {
		thread := checkThread(L)
		s.spend(L, 1)
		why := ""
		if is := status(L, thread); is != "suspended" {
			why = "cannot resume " + is + " coroutine"
		}
		depth := 0
		for running := L; running != nil; running = running.Parent {
			depth++
		}
		if depth > maxCoroutineDepth {
			why = "C stack overflow"
		}
		if why == "" {
			return original(L)
		}
		return push(L, lua.LFalse, lua.LString(why))
	}
}
