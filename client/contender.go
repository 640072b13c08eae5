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

	// ID is the contender's id; "" means a new one, counter:pid@host~random. No two contenders may have
	// the same.
	ID string

	// TTL is how long it owns the mutex before it must renew: the owner may work. Shorter
	// means that a dead owner is noticed sooner, and more requests. Simba's advice: 5 to 15 s.
	TTL time.Duration

	// Transition follows the TTL: nobody else may take the mutex, and the owner may
	// renew still. It keeps leadership from flapping when an answer is slow. Simba's
	// advice: 1 to 3 s, and more than 0 for stable leadership.
	Transition time.Duration

	// InitialDelay is before the first request after Start. 0 starts at once; a little
	// spreads a fleet that starts together.
	InitialDelay time.Duration

	// OnAcquired is called when it has become the owner. The context ends when it is not the owner any
	// more; [Token] tells its fencing token. It may return at once or work until the context ends:
	// renewals go on meanwhile.
	OnAcquired func(ownership context.Context, s State)

	// OnReleased is called when it is not the owner any more, after OnAcquired has returned. The
	// mutex is asked for again, or released when it stops, when OnReleased has
	// returned: so work that OnReleased ends never runs in two places at a time,
	// unless the mutex was lost. The lease is not renewed meanwhile: as a rule a third of it is
	// left, and callbacks that take longer lose it.
	OnReleased func(State)
}

func (cfg *ContenderConfig) terms() terms {
	if cfg.ID == "" {
		cfg.ID = defaultID()
	}
	return terms{cfg.Mutex, cfg.ID, cfg.TTL, cfg.Transition}
}

// Contender wants a mutex for as long as it runs: Simba's contention service. It begins
// stopped and may be started again after each stop. Its callbacks are called one at a
// time, in order.
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

// NewContender returns a stopped Contender. The error names the field that cannot be.
func (c *Client) NewContender(cfg ContenderConfig) (*Contender, error) {
	t := cfg.terms()
	if err := t.check(); err != nil {
		return nil, err
	}
	switch {
	case cfg.InitialDelay < 0:
		return nil, fmt.Errorf("InitialDelay is %v, less than 0", cfg.InitialDelay)
	case cfg.OnAcquired == nil:
		return nil, errors.New("OnAcquired is nil")
	case cfg.OnReleased == nil:
		return nil, errors.New("OnReleased is nil")
	}
	return &Contender{c: c, terms: t, cfg: cfg}, nil
}

// ID returns the contender's id.
func (k *Contender) ID() string { return k.terms.id }

// Start begins to contend. It does not wait for anything; what goes wrong is logged
// and tried again. ErrInUse: it runs already, or what it had before is not given up yet.
func (k *Contender) Start() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.run != nil {
		select {
		case <-k.run.done:
		default:
			return ErrInUse
		}
	}
	var p *pursuit
	told := false // that it was acquired; used by callbacks only
	p = k.c.pursue(k.terms, hooks{
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
	k.run = p
	go p.run()
	return nil
}

// Stop ends contending: the ownership's context ends, OnReleased is called, and when it has returned the
// mutex is released, or the place in the queue. It waits for that until ctx ends; it goes on without.
// The error is that of ctx, or of the release: the mutex is free then when its lease
// is over; or ErrLost, if it was lost in the meantime. After any other error the release may be delivered
// yet, and end what this ID acquires by then: start another ID instead. A Contender that is stopped is stopped.
//
// Called from a callback, it must not be waited for: cancel ctx before.
func (k *Contender) Stop(ctx context.Context) error {
	k.mu.Lock()
	p := k.run
	k.mu.Unlock()
	if p == nil {
		return nil
	}
	p.stop()
	select {
	case <-p.done:
		return p.err
	default:
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("stop the contender %s of %s: %w", k.terms.id, k.terms.mutex, ctx.Err())
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
