// Package worker has the state machine of a job processor that works while it is the leader.
package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/simba-resp/simba-resp/client"
)

// State is the state of a Worker.
type State int

// The states of a Worker. The comment of Worker shows how they follow each other.
const (
	Idle State = iota
	Acquiring
	Working
	Renewing
	Pausing
	Waiting
	Releasing
)

var states = [...]string{"idle", "acquiring", "working", "renewing", "pausing", "waiting", "releasing"}

// String returns the name of the state, in lower case.
func (s State) String() string {
	if s >= 0 && int(s) < len(states) {
		return states[s]
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Worker processes jobs while it is the leader. Its states:
//
//	         Run                    acquired             renewal is due
//	  idle ────────► acquiring ───────────────► working ◄──────────────► renewing
//	   ▲                    │ not free             │        renewed         │
//	   │                    ▼                      ▼ lost, or Run ends      │
//	   │                 waiting ◄───────────── pausing (StopWork) ◄────────┘
//	   │  released                                 │ Run ends
//	releasing ◄────────────────────────────────────┘
//
// A waiting Worker works as soon as it acquires the mutex. When Run ends, every state leads to idle.
// A Worker is safe for concurrent use.
//
// The states are those of a worker in a Node.js tutorial. Unlike that worker, a Worker starts the
// work once for each tenure, not after each renewal.
type Worker struct {
	// Client and Mutex must be set.
	Client *client.Client
	Mutex  string

	// StartWork is called when the Worker has acquired the mutex. Its context ends when the mutex
	// is lost, or before the Worker releases it. StartWork may start the work and return, or work
	// until its context ends. If StartWork returns an error, the Worker calls StopWork, releases
	// the mutex, and contends again after a pause, see client.Client.Lead. It must be set.
	StartWork func(ownership context.Context) error

	// StopWork is called when the context of StartWork has ended and StartWork has returned. The
	// Worker releases the mutex, or asks for it again, only after StopWork has returned. It may be
	// nil.
	StopWork func() error

	// Changed is called for each change of the state, in order, and must return soon. It may be nil.
	Changed func(from, to State)

	mu    sync.Mutex // guards state, and the order of calls of Changed
	state State
}

// Run contends for the mutex until ctx ends. It returns nil when the Worker is idle after that, or
// the error of client.Client.Lead. A Worker runs once at a time.
func (w *Worker) Run(ctx context.Context, o ...client.Option) error {
	switch {
	case ctx == nil:
		return errors.New("ctx is nil")
	case w.Client == nil:
		return errors.New("Client is nil")
	case w.StartWork == nil:
		return errors.New("StartWork is nil")
	}
	if !w.become(Acquiring, Idle) {
		return fmt.Errorf("run the worker of %s: %w", w.Mutex, client.ErrInUse)
	}
	defer w.become(Idle)
	var token atomic.Uint64 // of the present tenure
	hook := func(to State, from ...State) func(context.Context, client.HookEvent) {
		return func(_ context.Context, e client.HookEvent) {
			if e.Token == token.Load() { // else the hook of an earlier tenure is late
				w.become(to, from...)
			}
		}
	}
	hooks := client.WithHooks(client.Hooks{
		Contended: func(context.Context, client.HookEvent) { w.become(Waiting) },
		Acquired:  func(_ context.Context, e client.HookEvent) { token.Store(e.Token); w.become(Working) },
		Asked:     hook(Renewing, Working),
		Renewed:   hook(Working, Renewing),
		Lost:      hook(Pausing, Working, Renewing),
	})
	err := w.Client.Lead(ctx, w.Mutex, func(own context.Context) error { return w.work(ctx, own) }, append(slices.Clip(o), hooks)...)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// work works for one tenure.
func (w *Worker) work(ctx, own context.Context) error {
	err := w.StartWork(own)
	if err == nil {
		<-own.Done()
	}
	w.become(Pausing)
	if w.StopWork != nil {
		err = errors.Join(err, w.StopWork())
	}
	if ctx.Err() != nil {
		w.become(Releasing)
	} else {
		w.become(Waiting)
	}
	return err
}

// State returns the state of the Worker.
func (w *Worker) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// become sets the state, if the present one is one of from or from is empty.
func (w *Worker) become(to State, from ...State) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.state
	ok := len(from) == 0
	for _, s := range from {
		ok = ok || s == before
	}
	if !ok || before == to {
		return ok
	}
	w.state = to
	if w.Changed != nil {
		w.Changed(before, to)
	}
	return true
}
