package poll

import (
	"fmt"
	"iter"
	"runtime/debug"
	"sync/atomic"
)

// place is where a task goes on.
type place uint8

const (
	idle    place = iota // nowhere, until there is a signal
	looped               // in its poller's next round, on the poller's goroutine
	lined                // behind the others of the line, on its goroutine
	away                 // on a goroutine of its own: it may wait for whatever, and compute
	passing              // away, when a round lets it
)

// task is the goroutine of a connection as a coroutine: it runs when somebody resumes it, on that one's time, until it
// says where it goes on. So a poller's goroutine serves all connections that have something to do, one after the other.
//
// It begins by start. A signal before that is not lost: it looks before it goes idle.
type task struct {
	poller *Poller
	resume func() (place, bool)
	yield  func(place) bool
	here   place // of the task alone, while it runs
	hasHad bool  // likewise: it has read in this round, or was elsewhere

	state atomic.Uint32 // a taskState
}

type taskState = uint32

const (
	running  taskState = iota // or about to
	signaled                  // running, and there was a signal: it must not go idle without a look
	resting                   // idle
)

func (t *task) start(run func()) {
	t.resume, _ = iter.Pull(func(yield func(place) bool) {
		defer func() {
			if p := recover(); p != nil { // who resumes it would panic with a stack of its own
				panic(fmt.Sprintf("%v\n\n%s", p, debug.Stack()))
			}
		}()
		t.yield = yield
		run()
	})
	t.poller.enqueue(t, false)
}

// signal has the task look up, if it is idle or about to be. Any goroutine may call it.
func (t *task) signal() {
	if t.claim() {
		t.poller.enqueue(t, false)
	}
}

// claim is signal for who puts the task into the queue itself where it returns true.
func (t *task) claim() bool {
	for {
		switch t.state.Load() {
		case signaled:
			return false
		case running:
			if t.state.CompareAndSwap(running, signaled) {
				return false
			}
		case resting:
			if t.state.CompareAndSwap(resting, running) {
				return true
			}
		}
	}
}

// goOn runs the task on the caller's goroutine, whose place is given, until it wants to go on elsewhere. Only one
// goroutine may have the task, and this one gives it away. A task that was in the line is not queued behind the others: it
// has waited.
func (t *task) goOn(here place) {
	for {
		t.here, t.hasHad = here, here != looped // who was elsewhere reads on in a round
		t.state.Store(running)                  // whoever signaled before then has said why where the task looks
		to, ok := t.resume()
		if !ok {
			t.resume, t.yield = nil, nil // which would keep the connection in memory as long as anybody has the task
			return
		}
		switch to {
		case idle:
			if t.state.CompareAndSwap(running, resting) {
				return
			}
		case looped:
			t.poller.enqueue(t, here != lined)
			return
		case lined:
			t.poller.lineUp(t)
			return
		case away:
			go t.goOn(away)
			return
		case passing:
			t.poller.pass(t)
			return
		}
	}
}

// to has the task go on elsewhere. It is called by the task itself.
func (t *task) to(p place) { t.yield(p) }

// mayRead reports whether the task may read in this round. Who sends without end has one buffer a round, whatever
// it is full of.
func (t *task) mayRead() bool {
	had := t.hasHad
	t.hasHad = true
	return !had
}
