package poll

import (
	"fmt"
	"iter"
	"runtime/debug"
	"sync/atomic"
)

// mode says where a task runs next.
type mode uint8

const (
	idle     mode = iota // nowhere, until the next signal
	shared               // in a round of its poller, on the main goroutine or on a helper
	ordered              // on the goroutine of ordered tasks, first come, first served
	detached             // on a goroutine of its own, where it may block and compute
	paused               // nowhere, until a round resumes it as detached
)

// task is a connection's code as a coroutine. It runs on the goroutine that resumes it, until it
// switches to another mode.
//
// A signal before start is not lost, because a task checks its socket before it becomes idle.
type task struct {
	poller  *Poller
	resume  func() (mode, bool)
	yield   func(mode) bool
	here    mode // current mode, set by run
	hasRead bool // the task must not read now; see mayRead

	state atomic.Uint32 // a taskState
}

type taskState = uint32

const (
	running  taskState = iota // the task runs or is about to run
	signaled                  // the task runs, and must run again before it becomes idle
	parked                    // the task is idle
)

func (t *task) start(run func()) {
	t.resume, _ = iter.Pull(func(yield func(mode) bool) {
		defer func() {
			if p := recover(); p != nil { // iter.Pull would lose the stack of the coroutine
				panic(fmt.Sprintf("%v\n\n%s", p, debug.Stack()))
			}
		}()
		t.yield = yield
		run()
	})
	t.poller.enqueue(t, false)
}

// signal makes the task run: now if it is idle, otherwise again when it becomes idle. Any goroutine
// may call it.
func (t *task) signal() {
	if t.claim() {
		t.poller.enqueue(t, false)
	}
}

// claim is signal without the call of enqueue. If claim returns true, the task was idle, and the
// caller must enqueue it.
func (t *task) claim() bool {
	for {
		switch t.state.Load() {
		case signaled:
			return false
		case running:
			if t.state.CompareAndSwap(running, signaled) {
				return false
			}
		case parked:
			if t.state.CompareAndSwap(parked, running) {
				return true
			}
		}
	}
}

// run resumes the task in the given mode on the caller's goroutine, until the task switches to
// another mode or becomes idle. Only one goroutine may run a task at a time. An ordered task that
// becomes shared is not a returning task, since it has waited already.
func (t *task) run(here mode) {
	for {
		t.here, t.hasRead = here, here != shared
		t.state.Store(running) // forgets earlier signals, since Read checks for their reasons
		to, ok := t.resume()
		if !ok {
			t.resume, t.yield = nil, nil // so that the connection's memory is released
			return
		}
		switch to {
		case idle:
			if t.state.CompareAndSwap(running, parked) {
				return
			}
		case shared:
			t.poller.enqueue(t, here != ordered)
			return
		case ordered:
			t.poller.enqueueOrdered(t)
			return
		case detached:
			go t.run(detached)
			return
		case paused:
			t.poller.enqueuePaused(t)
			return
		}
	}
}

// switchTo continues the task in another mode. Only the task itself may call it.
func (t *task) switchTo(m mode) { t.yield(m) }

// mayRead reports whether the task may read now. A task may read only in a round, and only once a
// round. So a client that sends without a pause gets one read a round, whatever the size of its
// commands.
func (t *task) mayRead() bool {
	had := t.hasRead
	t.hasRead = true
	return !had
}
