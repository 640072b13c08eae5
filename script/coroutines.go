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
	create, wrap, resume := original("create"), original("wrap"), original("resume")
	t := s.table(map[string]lua.LGFunction{
		"yield": original("yield"), "status": original("status"), "running": original("running"),
		"create": func(L *lua.LState) int {
			thread := s.thread(L, create)
			L.Push(thread)
			return 1
		},
		"wrap": func(L *lua.LState) int {
			f := s.thread(L, wrap).(*lua.LFunction)
			next := f.GFunction
			thread := f.Upvalues[0].Value().(*lua.LState)
			f.GFunction = func(L *lua.LState) int {
				s.checkResume(L, thread)
				return next(L)
			}
			L.Push(f)
			return 1
		},
		"resume": func(L *lua.LState) int {
			thread, ok := L.Get(1).(*lua.LState)
			if !ok {
				badArgument(L, 1, "coroutine expected")
			}
			s.checkResume(L, thread)
			return resume(L)
		},
	})
	return t
}

// thread makes a coroutine by one of the machine's functions. The machine would give it a
// context of its own that is not the meter.
func (s *state) thread(L *lua.LState, open lua.LGFunction) lua.LValue {
	checkFunction(L, 1)
	s.spend(L, coroutineSteps)
	options, meter := L.Options, L.RemoveContext()
	defer func() { // opening may fail
		L.Options = options
		L.SetContext(meter)
	}()
	L.Options.CallStackSize, L.Options.RegistrySize = maxCoroutineCalls, coroutineRegisters
	L.SetTop(1)
	open(L)
	made := L.Get(-1)
	L.Pop(1)
	thread, ok := made.(*lua.LState)
	if !ok {
		thread = made.(*lua.LFunction).Upvalues[0].Value().(*lua.LState)
	}
	thread.SetContext(meter)
	return made
}

// checkResume refuses a coroutine that waits for the running one, and too many inside each
// other.
func (s *state) checkResume(L, thread *lua.LState) {
	s.spend(L, 1)
	depth := 0
	for running := L; running != nil; running = running.Parent {
		if running == thread && running != L {
			L.RaiseError("cannot resume normal coroutine")
		}
		depth++
	}
	if depth > maxCoroutineDepth {
		L.RaiseError("C stack overflow")
	}
}
