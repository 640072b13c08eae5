package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ContenderConfig says what a Contender wants and whom it tells.
type ContenderConfig struct {
	Mutex string // what it contends for: 1 to 255 bytes, see SIMBA.ACQUIRE

	// ID is the contender's id; "" means a new one, counter:pid@host~random. No two contenders of a
	// mutex may have the same: in one Client the second is refused with ErrInUse.
	ID string

	// TTL is how long it owns the mutex before it must renew: the owner may work. Shorter means
	// that a dead owner is noticed sooner, and more requests. Simba's advice: 5 to 15 s. 0 means
	// the Client's, which is 10 s unless Options say otherwise.
	TTL time.Duration

	// Transition follows the TTL: nobody else may take the mutex, and the owner may renew still. It
	// keeps leadership from flapping when an answer is slow. Simba's advice: 1 to 3 s. 0 means the
	// Client's, which is 2 s unless Options say otherwise; NoTransition means none.
	Transition time.Duration

	// InitialDelay is before the first request after Start. 0 starts at once; a little
	// spreads a fleet that starts together.
	InitialDelay time.Duration

	// OnAcquired is called when it has become the owner. The context ends when it is not the owner
	// any more; [Token] tells its fencing token. It has the values of the context of Run. The
	// callback may return at once or work until the context ends: renewals go on meanwhile, and
	// after it has returned. With nothing more to do, call Resign or Quit.
	OnAcquired func(ownership context.Context, s State)

	// OnReleased is called when it is not the owner any more, after OnAcquired has returned. The
	// mutex is asked for again, or released when it stops, when OnReleased has returned: so work
	// that OnReleased ends never runs in two places at a time, unless the mutex was lost. The lease
	// is not renewed meanwhile: as a rule a third of it is left, and callbacks that take longer
	// lose it. It may be nil. A panic in a callback ends the process.
	OnReleased func(State)
}

// Contender wants a mutex for as long as it runs: Simba's contention service. It begins
// stopped and may be started again after each stop. Its callbacks are called one at a
// time, in order. Safe for concurrent use.
//
// To lock a mutex for one piece of work, [Client.Do] is the plain way.
type Contender struct {
	c         *Client
	terms     terms
	cfg       ContenderConfig
	callbacks callbacks

	mu    sync.Mutex // guards what follows
	run   *pursuit   // the last; nil = never started
	own   *ownership // nil = not the owner
	owner Owner      // as seen last
}

// NewContender returns a stopped Contender. The error names the field that is wrong.
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

// Run contends until ctx ends, and gives up what it has. It returns when the callbacks have
// returned and the mutex is released, or after Timeout if the server does not answer. The error is
// as that of Stop: ErrUnavailable is no reason to worry at the end of a process, since the mutex is
// free when the lease is over. nil means that nothing is left. It returns early after Stop or Quit,
// and with ErrClosed when the Client or the go-redis client is closed. ErrInUse: it runs already.
// What goes wrong meanwhile is logged and tried again.
func (k *Contender) Run(ctx context.Context) error {
	p, err := k.start(ctx)
	if err != nil {
		return err
	}
	return p.last(ctx, k.c, k.name())
}

// Start begins to contend. It does not wait for anything; what goes wrong is logged
// and tried again. ErrInUse: it runs already, what it had before is not given up yet, or another
// contender of the Client has its id. ErrClosed: the Client is closed.
func (k *Contender) Start() error {
	_, err := k.start(context.Background())
	return err
}

func (k *Contender) start(base context.Context) (*pursuit, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.run != nil && !k.run.over() {
		return nil, fmt.Errorf("start %s: %w", k.name(), ErrInUse)
	}
	var p *pursuit
	told := false // that it was acquired; used by callbacks only
	p = k.c.newPursuit(base, k.terms, hooks{
		acquired: func(o *ownership, s State) {
			k.note(o, s.After)
			k.callbacks.add(func() {
				if told = !p.quitting(); told { // nobody is told of it after Stop
					k.cfg.OnAcquired(o, s)
				}
			})
		},
		lost: func(_ *ownership, s State) {
			k.note(nil, s.After)
			k.callbacks.add(func() {
				if told {
					k.cfg.OnReleased(s)
				}
			})
		},
		waiting: func(o Owner) { k.note(nil, o) },
		settled: k.callbacks.idle,
	})
	p.delay = k.cfg.InitialDelay
	if err := p.begin(); err != nil {
		return nil, fmt.Errorf("start %s: %w", k.name(), err)
	}
	k.run = p
	return p, nil
}

// name says what it is, in errors.
func (k *Contender) name() string {
	return fmt.Sprintf("the contender %s of %s", k.terms.id, k.terms.mutex)
}

// Stop ends contending: the ownership's context ends, OnReleased is called, and when it has
// returned the mutex is released, or the place in the queue. If ctx ends first, it returns the
// error of ctx, and all that continues in the background. Called in a callback with its ownership
// context it does not wait at all, and returns nil.
//
// The error is that of ctx, or of the release: the mutex is free then when its lease is over; or
// ErrLost, if it was lost in the meantime; or ErrUnavailable, if the server has not answered within
// Timeout: the release is tried until the lease is over, and Start returns ErrInUse until then. To
// stop a Contender that is stopped does nothing and returns what Stop returned.
func (k *Contender) Stop(ctx context.Context) error { return k.running().end(ctx, "stop "+k.name()) }

// Quit begins to stop and does not wait for it: unlike Stop it may be called in every callback.
func (k *Contender) Quit() {
	if r := k.running(); r != nil {
		r.stop()
	}
}

// running returns the last run; nil = never started.
func (k *Contender) running() *run {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.run == nil {
		return nil
	}
	return k.run.run
}

// Resign gives the mutex up and contends again, at the end of the queue: if nobody waits, it
// acquires the mutex anew. The ownership's context ends at once; the mutex is released when the
// callbacks have returned. It does not wait for that, so it may be called in a callback. One that
// is not the owner does nothing.
func (k *Contender) Resign() { k.resign(atOnce) }

func (k *Contender) resign(how int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.own != nil {
		k.run.askToResign(k.own, how)
	}
}

// IsOwner reports whether it owns the mutex at this moment.
func (k *Contender) IsOwner() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.own != nil && k.own.left() > 0
}

// Owner returns who owned the mutex when the server was last heard of it: of itself it is
// what holds now.
func (k *Contender) Owner() Owner {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.own == nil:
		return k.owner
	case k.own.left() <= 0:
		return Owner{}
	}
	return k.own.owner(k.terms)
}

// note notes who owns the mutex: own, if it is not nil.
func (k *Contender) note(own *ownership, owner Owner) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.own, k.owner = own, owner
}
