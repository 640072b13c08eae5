package script

import (
	lua "github.com/yuin/gopher-lua"
)

const (
	// maxCoroutineDepth is how many coroutines may run inside each other. Each has a stack of
	// its own, and all of them are on the one of Go.
	maxCoroutineDepth = 16
	// maxCoroutineCalls and coroutineRegisters are for one coroutine what maxCalls and
	// minRegisters are for the main thread.
	maxCoroutineCalls  = 200
	coroutineRegisters = 256
	coroutineSteps     = 200 // the price of one
)

// coroutineLibrary is the machine's, with coroutines that are metered too.
func (s *state) coroutineLibrary() *lua.LTable {
	donor := lua.NewState(lua.Options{SkipOpenLibs: true}) // opening a library defines globals
	defer donor.Close()
	lua.OpenCoroutine(donor)
	machine := donor.Get(-1).(*lua.LTable)
	original := func(name string) lua.LGFunction { return machine.RawGetString(name).(*lua.LFunction).GFunction }
	create, resume := original("create"), s.resume(original("resume"))
	t := s.table(map[string]lua.LGFunction{
		"status": coroutineStatus, "running": original("running"), "resume": resume,
		"create": func(L *lua.LState) int {
			L.Push(s.thread(L, create))
			return 1
		},
		"wrap": func(L *lua.LState) int {
			thread := s.thread(L, create)
			L.Push(L.NewFunction(func(L *lua.LState) int {
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
			return 1
		},
	})
	s.yield = s.newYield(original("yield"))
	t.RawSetString("yield", s.yield)
	return t
}

// thread makes a coroutine. The machine would give it a context of its own that is not the meter.
func (s *state) thread(L *lua.LState, create lua.LGFunction) *lua.LState {
	if f, ok := L.Get(1).(*lua.LFunction); !ok || f.IsG || f == s.yield {
		badArgument(L, 1, "Lua function expected")
	}
	s.spend(L, coroutineSteps)
	options, meter := L.Options, L.RemoveContext()
	defer func() { // creating may fail
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
	L.Push(lua.LString(status(L, checkThread(L))))
	return 1
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

// resume is the machine's function, but it refuses too many coroutines inside each other.
func (s *state) resume(machine lua.LGFunction) lua.LGFunction {
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
			return machine(L)
		}
		L.Push(lua.LFalse)
		L.Push(lua.LString(why))
		return 2
	}
}
