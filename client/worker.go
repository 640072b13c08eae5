package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// WorkerState is where a Worker stands.
type WorkerState int

// The states of a Worker; see there.
const (
	Idle WorkerState = iota
	Acquiring
	Working
	Renewing
	Pausing
	Waiting
	Releasing
)

var workerStates = [...]string{"idle", "acquiring", "working", "renewing", "pausing", "waiting", "releasing"}

// String returns the state's name, in lower case.
func (s WorkerState) String() string {
	if s >= 0 && int(s) < len(workerStates) {
		return workerStates[s]
	}
	return fmt.Sprintf("WorkerState(%d)", int(s))
}

// WorkerConfig says what a Worker does while it is the leader.
type WorkerConfig struct {
	// Mutex, ID, TTL and Transition are as in ContenderConfig: whoever owns the mutex works.
	Mutex           string
	ID              string
	TTL, Transition time.Duration

	// StartWork is called when the mutex is acquired. It may start the work and return, or
	// work until its context ends, which is when the mutex is lost or given up. If it fails, the
	// work is stopped, the mutex is given up for others, and asked for again after TTL.
	StartWork func(ownership context.Context) error

	// StopWork is called when the mutex is lost or given up, after StartWork has returned. Only
	// then is the mutex asked for again, or released. What it returns is logged.
	StopWork func() error

	// Changed is called with each change of state, one at a time, in order; it may lag
	// behind, and what it has not been told yet is kept, so it must not block for good. nil = nobody wants to know.
	Changed func(from, to WorkerState)
}

// Worker processes jobs while it is the leader: the state machine of a distributed lock's
// worker.
//
//	         Start                    acquired             renewal is due
//	  idle ────────► acquiring ───────────────► working ◄──────────────► renewing
//	   ▲              ▲     │ another has it,      │        renewed         │
//	   │     called,  │     │ or no answer         │ lost                   │ lost
//	   │  or its time │     ▼                      ▼                        ▼
//	   │              └── waiting ◄─────────── pausing (StopWork) ◄─────────┘
//	   │  released                   stopped       │
//	releasing ◄────────────────────────────────────┘ Stop
//
// Stop leads from every state to releasing, through pausing if there is work to stop, and to
// idle. It differs from the worker that it is modelled on in what it leaves out: work is started
// once a tenure, not after each renewal; who waits is called by the server,
// and does not ask every five seconds; and an answer that is late does not lose the lock as
// long as the lease lasts.
type Worker struct {
	c     *Client
	terms terms
	cfg   WorkerConfig

	work    callbacks // StartWork and StopWork
	changes callbacks // Changed

	mu    sync.Mutex // guards what follows
	state WorkerState
	run   *working // the last; nil = never started
}

// working is one run of a Worker, from Start to Stop.
type working struct {
	stop func()
	quit chan struct{} // closed by stop
	done chan struct{} // closed when it has ended
	err  error         // of the release; may be read when done is closed
}

// NewWorker returns an idle Worker. The error names the field that cannot be.
func (c *Client) NewWorker(cfg WorkerConfig) (*Worker, error) {
	if cfg.ID == "" {
		cfg.ID = defaultID()
	}
	w := &Worker{c: c, terms: terms{cfg.Mutex, cfg.ID, cfg.TTL, cfg.Transition}, cfg: cfg}
	if err := w.terms.check(); err != nil {
		return nil, err
	}
	switch {
	case cfg.StartWork == nil:
		return nil, errors.New("StartWork is nil")
	case cfg.StopWork == nil:
		return nil, errors.New("StopWork is nil")
	}
	return w, nil
}

// ID returns the worker's contender id.
func (w *Worker) ID() string { return w.terms.id }

// State returns where it stands.
func (w *Worker) State() WorkerState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Start begins to ask for the mutex and does not wait for it. ErrInUse: it runs, or what
// it had is not given up yet.
func (w *Worker) Start() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run != nil {
		select {
		case <-w.run.done:
		default:
			return ErrInUse
		}
	}
	r := &working{quit: make(chan struct{}), done: make(chan struct{})}
	r.stop = sync.OnceFunc(func() { close(r.quit) })
	w.run = r
	go w.loop(r)
	return nil
}

// Stop stops the work, gives the mutex or the place in the queue up, and is idle. It waits for that until
// ctx ends; it goes on without. The error is that of ctx, or of the release: the mutex is free
// then when its lease is over; or ErrLost, if the mutex was lost in the meantime. An idle Worker is stopped.
//
// Called from a callback, it must not be waited for: cancel ctx before.
func (w *Worker) Stop(ctx context.Context) error {
	w.mu.Lock()
	r := w.run
	w.mu.Unlock()
	if r == nil {
		return nil
	}
	r.stop()
	select {
	case <-r.done:
		return r.err
	default:
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("stop the worker %s of %s: %w", w.terms.id, w.terms.mutex, ctx.Err())
	}
}

// loop contends until it is stopped: anew each time that the work could not be started.
func (w *Worker) loop(r *working) {
	defer close(r.done)
	for delay := time.Duration(0); ; delay = w.terms.ttl {
		p := w.pursue()
		p.delay = delay
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.run()
		}()
		select {
		case <-r.quit:
			p.stop()
		case <-ended:
		}
		<-ended
		r.err = p.err
		select {
		case <-r.quit:
			w.become(Idle)
			<-w.changes.idle()
			return
		default:
			w.become(Waiting)
		}
	}
}

func (w *Worker) pursue() *pursuit {
	var p *pursuit
	p = w.c.pursue(w.terms, hooks{
		settled: w.work.idle,
		asking: func(renewal bool) {
			if renewal {
				w.become(Renewing)
			} else {
				w.become(Acquiring)
			}
		},
		waiting: func(Owner) { w.become(Waiting) },
		failed: func(error, bool) {
			if p.own == nil {
				w.become(Waiting)
			}
		},
		renewed: func() { w.become(Working) },
		acquired: func(o *ownership, _ State) {
			w.become(Working)
			w.work.add(func() {
				if err := w.cfg.StartWork(o); err != nil && o.Err() == nil {
					w.c.log.Error("the work could not be started", "mutex", w.terms.mutex, "contender", w.terms.id, "err", err)
					p.stop()
				}
			})
		},
		lost: func(*ownership, State) {
			w.become(Pausing)
			w.work.add(func() {
				if err := w.cfg.StopWork(); err != nil {
					w.c.log.Error("the work could not be stopped", "mutex", w.terms.mutex, "contender", w.terms.id, "err", err)
				}
				if !p.quitting() {
					w.become(Waiting)
				}
			})
		},
		releasing: func() { w.become(Releasing) },
	})
	return p
}

// become notes a change of state.
func (w *Worker) become(to WorkerState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := w.state
	if from == to {
		return
	}
	w.state = to
	if w.cfg.Changed != nil {
		w.changes.add(func() { w.cfg.Changed(from, to) })
	}
}
