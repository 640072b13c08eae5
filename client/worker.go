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

	// Changed is called with each change of state, one at a time, in order; it may lag behind, and
	// what it has not been told yet is kept, so it must not block for good. nil = nobody wants to
	// know.
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
	run   *run // the last; nil = never started

	pursuit *pursuit   // of own
	own     *ownership // nil = not the owner
}

// NewWorker returns an idle Worker. The error names the field that is wrong.
func (c *Client) NewWorker(cfg WorkerConfig) (*Worker, error) {
	t, err := c.terms(cfg.Mutex, cfg.ID, cfg.TTL, cfg.Transition)
	if err != nil {
		return nil, err
	}
	switch {
	case cfg.StartWork == nil:
		return nil, errors.New("StartWork is nil")
	case cfg.StopWork == nil:
		cfg.StopWork = func() error { return nil }
	}
	return &Worker{c: c, terms: t, cfg: cfg}, nil
}

// ID returns the worker's contender id.
func (w *Worker) ID() string { return w.terms.id }

// State returns where it stands.
func (w *Worker) State() WorkerState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Run works as the leader until ctx ends, and gives up what it has; see [Contender.Run].
func (w *Worker) Run(ctx context.Context) error {
	r, err := w.start(ctx)
	if err != nil {
		return err
	}
	return r.last(ctx, w.c, w.name())
}

// Start begins to ask for the mutex and does not wait for it. ErrInUse: it runs, what it had is not
// given up yet, or another contender of the Client has its id. ErrClosed: the Client is closed.
func (w *Worker) Start() error {
	_, err := w.start(context.Background())
	return err
}

func (w *Worker) start(base context.Context) (*run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.run.over() {
		return nil, fmt.Errorf("start %s: %w", w.name(), ErrInUse)
	}
	r := newRun()
	m := &member{mutex: w.terms.mutex, id: w.terms.id, stop: r.stop}
	if err := w.c.roster.enter(m); err != nil {
		return nil, fmt.Errorf("start %s: %w", w.name(), err)
	}
	w.run = r
	go func() {
		err := w.loop(r.context(base), r)
		w.c.roster.leave(m, err)
		close(r.gone)
		r.finish(err)
	}()
	return r, nil
}

// name says what it is, in errors.
func (w *Worker) name() string {
	return fmt.Sprintf("the worker %s of %s", w.terms.id, w.terms.mutex)
}

// Stop stops the work, gives the mutex or the place in the queue up, and is idle. If ctx ends
// first, it returns the error of ctx, and that continues in the background. Called in StartWork
// with its ownership context it does not wait at all, and returns nil. The errors are those of
// [Contender.Stop]. To stop an idle Worker does nothing and returns what Stop returned.
func (w *Worker) Stop(ctx context.Context) error { return w.running().end(ctx, "stop "+w.name()) }

// Quit begins to stop and does not wait for it: unlike Stop it may be called in every callback.
func (w *Worker) Quit() {
	if r := w.running(); r != nil {
		r.stop()
	}
}

// Resign stops the work, gives the mutex up and contends again, see [Contender.Resign].
func (w *Worker) Resign() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.own != nil {
		w.pursuit.askToResign(w.own, atOnce)
	}
}

// note notes whether it owns the mutex, and by which pursuit.
func (w *Worker) note(p *pursuit, own *ownership) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pursuit, w.own = p, own
}

// running returns the last run; nil = never started.
func (w *Worker) running() *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.run
}

// loop contends until it is stopped: anew each time that the work could not be started.
func (w *Worker) loop(base context.Context, r *run) error {
	for delay := time.Duration(0); ; delay = w.terms.ttl {
		p := w.newPursuit(base)
		p.delay = delay
		go p.pursue()
		select {
		case <-r.quit:
			p.stop()
		case <-p.done:
		}
		<-p.done
		if !r.quitting() && !errors.Is(p.err, ErrClosed) {
			w.become(Waiting)
			select {
			case <-p.gone:
				continue
			case <-r.quit:
			}
		}
		w.become(Idle)
		<-w.changes.idle()
		if !p.over() {
			r.finish(p.err)
			<-p.gone
		}
		return p.left
	}
}

func (w *Worker) newPursuit(base context.Context) *pursuit {
	var p *pursuit
	p = w.c.newPursuit(base, w.terms, hooks{
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
			w.note(p, o)
			w.become(Working)
			w.work.add(func() {
				err := errors.New("StartWork panicked or ended its goroutine")
				defer func() {
					if err != nil && o.Err() == nil {
						w.c.log.Error("the work could not be started", "mutex", w.terms.mutex, "contender", w.terms.id, "err", err)
						p.stop()
					}
				}()
				err = w.cfg.StartWork(o)
			})
		},
		lost: func(*ownership, State) {
			w.note(nil, nil)
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
