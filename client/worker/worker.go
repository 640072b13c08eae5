// Package worker has the state machine of a job processor that works while it is the leader.
package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/internal/callbacks"
	"github.com/simba-resp/simba-resp/client/internal/contend"
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

// Config configures a Worker.
type Config struct {
	// Mutex, ID, TTL and Transition are as in client.ContenderConfig. The Worker works while it
	// owns the mutex.
	Mutex           string
	ID              string
	TTL, Transition time.Duration

	// StartWork is called when the Worker has acquired the mutex. Its context ends when the mutex
	// is lost, or before the Worker releases it. StartWork may start the work and return, or work
	// until its context ends. If StartWork returns an error, the Worker calls StopWork, releases
	// the mutex, and contends again after a TTL. StartWork must not be nil.
	StartWork func(ownership context.Context) error

	// StopWork is called when the context of StartWork has ended and StartWork has returned. The
	// Worker releases the mutex, or asks for it again, only after StopWork has returned. The Worker
	// logs an error of StopWork. StopWork may be nil.
	StopWork func() error

	// Changed is called for each change of the state, one at a time, in order. A call may come
	// late. Until then the Worker keeps the change in memory, so Changed must not block for ever.
	// It may be nil.
	Changed func(from, to State)
}

// Worker processes jobs while it is the leader. Its states:
//
//	         Start                    acquired             renewal is due
//	  idle ────────► acquiring ───────────────► working ◄──────────────► renewing
//	   ▲              ▲     │ not free,            │        renewed         │
//	   │      notice, │     │ or no reply          │ lost                   │ lost
//	   │  or time out │     ▼                      ▼                        ▼
//	   │              └── waiting ◄─────────── pausing (StopWork) ◄─────────┘
//	   │  released                   stopped       │
//	releasing ◄────────────────────────────────────┘ Stop
//
// Stop leads from every state to releasing and then to idle. If there is work to stop, it first
// leads to pausing. A Worker is safe for concurrent use.
//
// The states are those of a worker in a Node.js tutorial. Unlike that worker, a Worker starts the
// work once for each tenure, not after each renewal.
type Worker struct {
	cfg       Config
	contender *client.Contender
	changes   callbacks.Queue // calls of Changed

	// Used by the callbacks of contender only.
	failed   bool        // whether StartWork has failed
	startErr error       // the error of StartWork
	workDone func(error) // calls the hook WorkDone

	mu    sync.Mutex // guards state
	state State
}

// New returns an idle Worker. The error names the field of cfg that is not valid.
func New(c *client.Client, cfg Config) (*Worker, error) {
	switch {
	case cfg.StartWork == nil:
		return nil, errors.New("StartWork is nil")
	case cfg.StopWork == nil:
		cfg.StopWork = func() error { return nil }
	}
	w := &Worker{cfg: cfg}
	var err error
	w.contender, err = c.NewContender(client.ContenderConfig{
		Mutex: cfg.Mutex, ID: cfg.ID, TTL: cfg.TTL, Transition: cfg.Transition, OnAcquired: w.startWork, OnReleased: w.stopWork,
	})
	if err != nil {
		return nil, err
	}
	contend.Trace(w.contender, contend.Hooks{
		Asking: func(renewal bool) {
			if renewal {
				w.become(Renewing)
			} else {
				w.become(Acquiring)
			}
		},
		Acquired: func(context.Context) { w.become(Working) },
		Renewed:  func() { w.become(Working) },
		Lost:     func() { w.become(Pausing) },
		Waiting:  func() { w.become(Waiting) },
		Failed: func(_ error, _, owner bool) {
			if !owner {
				w.become(Waiting)
			}
		},
		Releasing: func() { w.become(Releasing) },
		Ended: func() {
			w.become(Idle)
			<-w.changes.Idle()
		},
	})
	return w, nil
}

// ID returns the worker's contender id.
func (w *Worker) ID() string { return w.contender.ID() }

// State returns the state of the Worker.
func (w *Worker) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Run runs the Worker until ctx ends, see [client.Contender.Run].
func (w *Worker) Run(ctx context.Context) error { return w.contender.Run(ctx) }

// Start starts the Worker and does not wait for the server, see [client.Contender.Start].
func (w *Worker) Start() error { return w.contender.Start() }

// Stop stops the work, releases the mutex or the queue entry, and waits until the Worker is idle.
// See [client.Contender.Stop].
func (w *Worker) Stop(ctx context.Context) error { return w.contender.Stop(ctx) }

// Quit stops the Worker in the background. Callbacks may call it.
func (w *Worker) Quit() { w.contender.Quit() }

// Resign stops the work, releases the mutex and contends again, see [client.Contender.Resign].
func (w *Worker) Resign() { w.contender.Resign() }

func (w *Worker) startWork(ownership context.Context, _ client.State) {
	w.workDone = contend.BeginWork(w.contender, ownership)
	err := errors.New("StartWork panicked or ended its goroutine")
	defer func() {
		w.startErr = err
		if err != nil && ownership.Err() == nil {
			contend.Logger(w.contender).Error("StartWork failed", "err", err)
			w.failed = true
			contend.ResignForTTL(w.contender)
		}
	}()
	err = w.cfg.StartWork(ownership)
}

func (w *Worker) stopWork(client.State) {
	err := w.cfg.StopWork()
	w.workDone(errors.Join(w.startErr, err))
	if err != nil {
		contend.Logger(w.contender).Error("StopWork failed", "err", err)
	}
	if !w.failed && !contend.Stopping(w.contender) {
		w.become(Waiting)
	}
	w.failed = false
}

// become sets the state, and adds a call of Changed if the state has changed.
func (w *Worker) become(to State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := w.state
	if from == to {
		return
	}
	w.state = to
	if w.cfg.Changed != nil {
		w.changes.Add(func() { w.cfg.Changed(from, to) })
	}
}
