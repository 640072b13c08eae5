package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp/client/internal/callbacks"
	"github.com/simba-resp/simba-resp/client/internal/contend"
)

// ContenderConfig configures a Contender.
type ContenderConfig struct {
	Mutex string // 1 to 255 bytes, see SIMBA.ACQUIRE

	// ID is the contender's id; "" means a new one, counter:pid@host~random. Two contenders of a
	// mutex must not share an id. A Client refuses the second one with ErrInUse.
	ID string

	// TTL is the TTL window of the lease, 1 ms to 24 h. With a shorter TTL another contender
	// replaces a dead owner sooner, but the owner sends more requests. Simba (for the JVM)
	// recommends 5 to 15 s. 0 means the TTL of the Client, which is 10 s by default.
	TTL time.Duration

	// Transition is the transition window, which follows the TTL window: up to 24 h. The owner may
	// still renew in this window, so one slow reply does not lose the lease. Simba (for the JVM)
	// recommends 1 to 3 s. 0 means the Transition of the Client, which is 2 s by default.
	// NoTransition means no transition window.
	Transition time.Duration

	// InitialDelay is the time from Start to the first request. A random delay spreads the requests
	// of many processes that start together. 0 means no delay.
	InitialDelay time.Duration

	// OnAcquired is called when the contender has acquired the mutex. It must not be nil. The
	// ownership context ends when the contender is not the owner any more. It has the values of the
	// context of Run, and [Token] returns its fencing token. The contender continues to renew the
	// lease after OnAcquired has returned. To release the mutex, call Resign or Quit.
	OnAcquired func(ownership context.Context, s State)

	// OnReleased is called when the ownership has ended and OnAcquired has returned. It may be nil.
	// A panic in OnAcquired or OnReleased ends the process.
	//
	// The contender releases the mutex, or asks for it again, only when OnReleased has returned. So
	// OnReleased can stop the work before the next owner begins, unless the mutex was lost.
	//
	// The contender does not renew the lease after the end of the ownership. Usually a third of the
	// lease is left for the callbacks. If they take longer, the lease expires.
	OnReleased func(State)
}

// Contender contends for a mutex as long as it runs, like the contention service of Simba. A new
// Contender is stopped, and a stopped one may be started again. It calls its callbacks one at a
// time, in order. It is safe for concurrent use.
//
// To lock a mutex for one piece of work, use [Client.Do].
type Contender struct {
	c         *Client
	terms     terms
	cfg       ContenderConfig
	callbacks callbacks.Queue
	trace     contend.Hooks

	mu    sync.Mutex    // guards what follows
	run   *contenderRun // the last run; nil = never started
	own   *ownership    // nil = not the owner
	owner Owner         // the owner of the mutex in the last reply
}

// NewContender returns a stopped Contender. The error names the field that is not valid.
func (c *Client) NewContender(cfg ContenderConfig) (*Contender, error) {
	t, err := c.terms(cfg.Mutex, cfg.ID, cfg.TTL, cfg.Transition)
	if err != nil {
		return nil, err
	}
	switch {
	case cfg.InitialDelay < 0:
		return nil, fmt.Errorf("InitialDelay is %v, less than 0", cfg.InitialDelay)
	case cfg.OnAcquired == nil:
		return nil, errors.New("OnAcquired is nil")
	case cfg.OnReleased == nil:
		cfg.OnReleased = func(State) {}
	}
	return &Contender{c: c, terms: t, cfg: cfg}, nil
}

// ID returns the contender's id.
func (k *Contender) ID() string { return k.terms.id }

// Run starts the Contender, waits until ctx ends or another goroutine calls Stop or Quit, and stops
// the Contender. It returns when the callbacks have returned and the mutex is released. It waits at
// most Options.Timeout for the reply to the release. While the Contender runs, it logs and
// repeats failed requests.
//
// Run returns nil if the server has confirmed the release. It returns ErrInUse if the Contender
// runs already, ErrClosed if the Client or the go-redis client is closed, or the error of Stop. A
// process that ends after Run may ignore ErrUnavailable: the mutex is free when the lease ends.
func (k *Contender) Run(ctx context.Context) error {
	r, err := k.start(ctx)
	if err != nil {
		return err
	}
	return r.waitDone(ctx, k.c, k.name())
}

// Start starts the Contender and does not wait for the server. Most programs use [Contender.Run]
// instead.
//
// Start returns ErrInUse if the Contender runs already, or if its last run has not released the
// mutex yet. Start also returns ErrInUse if another contender of the Client has the same mutex and
// id. It returns ErrClosed if the Client is closed.
func (k *Contender) Start() error {
	_, err := k.start(context.Background())
	return err
}

func (k *Contender) start(base context.Context) (*contenderRun, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.run != nil && !k.run.over() {
		return nil, fmt.Errorf("start %s: %w", k.name(), ErrInUse)
	}
	var r *contenderRun
	called := false // whether OnAcquired was called for the present tenure; only callbacks use it
	h := stepsFor(k.trace)
	acquired, lost, waiting := h.acquired, h.lost, h.waiting
	h.acquired = func(o *ownership, s State) {
		k.note(o, s.After)
		acquired(o, s)
		k.callbacks.Add(func() {
			if called = !r.stopping(); called {
				k.cfg.OnAcquired(o, s)
			}
		})
	}
	h.lost = func(o *ownership, s State) {
		k.note(nil, s.After)
		lost(o, s)
		k.callbacks.Add(func() {
			if called {
				k.cfg.OnReleased(s)
			}
		})
	}
	h.waiting = func(o Owner) {
		k.note(nil, o)
		if waiting != nil {
			waiting(o)
		}
	}
	h.callbacksDone = k.callbacks.Idle
	r = k.c.newContenderRun(base, k.terms, h)
	r.delay = k.cfg.InitialDelay
	if err := r.begin(); err != nil {
		return nil, fmt.Errorf("start %s: %w", k.name(), err)
	}
	k.run = r
	return r, nil
}

func (k *Contender) name() string {
	return fmt.Sprintf("the contender %s of %s", k.terms.id, k.terms.mutex)
}

// Stop stops the Contender: it ends the ownership context, waits for OnReleased, and releases the
// mutex or the queue entry. On a stopped Contender, Stop returns the error of the last run. If a
// callback calls Stop with the ownership context, Stop does not wait and returns nil.
//
// If ctx ends first, Stop returns the error of ctx, and the Contender continues to stop in the
// background. Stop returns ErrLost if the mutex was lost before the release. It returns
// ErrUnavailable if the server does not reply within Options.Timeout. The Contender then repeats
// the release until it succeeds or the lease ends, and Start returns ErrInUse until then. After any
// other error the mutex is free when its lease ends.
func (k *Contender) Stop(ctx context.Context) error { return k.lastRun().end(ctx, "stop "+k.name()) }

// Quit stops the Contender in the background. Callbacks may call it.
func (k *Contender) Quit() {
	if r := k.lastRun(); r != nil {
		r.stop()
	}
}

// lastRun returns the last run; nil if the Contender was never started.
func (k *Contender) lastRun() *run {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.run == nil {
		return nil
	}
	return k.run.run
}

// Resign releases the mutex and contends again, at the end of the queue. If nobody waits, the
// contender acquires the mutex again. Resign ends the ownership context at once. The contender
// releases the mutex when the callbacks have returned. Resign does not wait for the release, so
// callbacks may call it. If the contender is not the owner, Resign does nothing.
func (k *Contender) Resign() { k.resign(resignNow) }

func (k *Contender) resign(how resignation) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.own != nil {
		k.run.requestResign(k.own, how)
	}
}

// IsOwner reports whether the contender owns the mutex at this moment.
func (k *Contender) IsOwner() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.own != nil && k.own.left() > 0
}

// Owner returns the owner of the mutex in the last reply. While the contender itself is the owner,
// the result has the windows of its present lease.
func (k *Contender) Owner() Owner {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.own == nil:
		return k.owner
	case k.own.left() <= 0:
		return Owner{}
	}
	return k.own.owner(k.run.terms) // not k.terms: the run may have shortened its windows
}

// note stores the owner of the mutex. own is nil if the contender is not the owner.
func (k *Contender) note(own *ownership, owner Owner) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.own, k.owner = own, owner
}
