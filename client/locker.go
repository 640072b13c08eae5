package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrNotLocked is returned by Unlock of what is not locked.
var ErrNotLocked = errors.New("it is not locked")

// LockerConfig says what a Locker locks and how long the lock lasts without its process.
type LockerConfig struct {
	Mutex string // 1 to 255 bytes, see SIMBA.ACQUIRE

	// TTL and Transition are the windows of the lease, 1 ms to 24 h and 0 to 24 h. It is renewed
	// until Unlock, so they only say how long the mutex stays locked when the process
	// dies: TTL + Transition.
	TTL, Transition time.Duration
}

// Locker takes a mutex for a piece of work: Simba's locker.
//
//	ownership, err := locker.Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer locker.Close()
//	return work(ownership) // which heeds the context
//
// It has one holder at a time and is not reentrant: a second use is ErrInUse. Each Lock
// is a contender of its own, with an id counter:pid@host~random, so nothing that an earlier one has asked for
// can touch it.
type Locker struct {
	c   *Client
	cfg LockerConfig

	mu  sync.Mutex // guards what follows
	run *pursuit   // nil = not in use
	own *ownership // nil = not locked
}

// NewLocker returns a Locker that is not locked. The error names the field that cannot be.
func (c *Client) NewLocker(cfg LockerConfig) (*Locker, error) {
	l := &Locker{c: c, cfg: cfg}
	if err := l.terms().check(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Locker) terms() terms { return terms{l.cfg.Mutex, defaultID(), l.cfg.TTL, l.cfg.Transition} }

// Lock waits until it owns the mutex, first come, first served, and returns the ownership
// context: it ends when the mutex is lost (cause ErrLost) or unlocked (cause ErrReleased), and
// [Token] tells its fencing token. The context does not end with ctx.
//
// If ctx ends first, the error matches ErrNotAcquired and ctx.Err, and the mutex will not be
// owned later: what may be left of the attempt is given up in the background. While the
// server cannot be asked Lock goes on trying; if it refuses, its error is returned. ErrInUse: it
// is locked, or being locked.
func (l *Locker) Lock(ctx context.Context) (ownership context.Context, err error) {
	return l.lock(ctx, false)
}

// TryLock asks once and takes no place in the queue. The error matches ErrNotAcquired if another owns the mutex, or
// is next; otherwise it is as with Lock, or why the server could not be asked.
func (l *Locker) TryLock(ctx context.Context) (ownership context.Context, err error) {
	return l.lock(ctx, true)
}

// attempt is what comes of locking.
type attempt struct {
	own *ownership
	err error
}

func (l *Locker) lock(ctx context.Context, once bool) (context.Context, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("lock %s: %w: %w", l.cfg.Mutex, ErrNotAcquired, err)
	}
	decided := make(chan attempt, 1)
	var p *pursuit
	var failure error // of the last request; guarded by l.mu
	fails := func(err error) {
		l.mu.Lock()
		failure = err
		l.mu.Unlock()
	}
	p = l.c.pursue(l.terms(), hooks{
		acquired: func(o *ownership, _ State) { decided <- attempt{own: o} },
		lost:     func(*ownership, State) { p.stop() }, // it is not to be had again behind the holder's back
		waiting: func(o Owner) {
			fails(nil)
			if once {
				decided <- attempt{err: fmt.Errorf("%w: it is %s's", ErrNotAcquired, nameOf(o))}
			}
		},
		failed: func(err error, final bool) {
			fails(err)
			if p.own == nil && (once || final) {
				select {
				case decided <- attempt{err: err}:
				default:
				}
				p.stop()
			}
		},
	})
	p.once, p.noQueue = once, once
	if !l.enter(p) {
		return nil, fmt.Errorf("lock %s: %w", l.cfg.Mutex, ErrInUse)
	}
	go p.run() // until Unlock, or it has given up
	var err error
	select {
	case a := <-decided:
		if a.err == nil && l.keep(p, a.own) {
			return a.own, nil
		}
		if err = a.err; err == nil {
			err = ErrClosed
		}
	case <-ctx.Done():
		err = ctx.Err()
	case <-p.quit:
		err = ErrClosed
		select {
		case a := <-decided:
			if a.err != nil {
				err = a.err
			}
		default:
		}
	}
	l.leave(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, ErrNotAcquired) || errors.Is(err, failure): // says it all
		return nil, fmt.Errorf("lock %s: %w", l.cfg.Mutex, err)
	case failure != nil:
		return nil, fmt.Errorf("lock %s: %w: %w (%s)", l.cfg.Mutex, ErrNotAcquired, err, failure.Error())
	}
	return nil, fmt.Errorf("lock %s: %w: %w", l.cfg.Mutex, ErrNotAcquired, err)
}

func nameOf(o Owner) string {
	if o.IsZero() {
		return "another waiter"
	}
	return o.ID
}

// enter takes the Locker into use.
func (l *Locker) enter(p *pursuit) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run != nil {
		return false
	}
	l.run = p
	return true
}

// keep notes that it is locked; false means that Close was faster.
func (l *Locker) keep(p *pursuit, own *ownership) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run != p {
		return false
	}
	l.own = own
	return true
}

// leave ends an attempt.
func (l *Locker) leave(p *pursuit) {
	p.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run == p {
		l.run = nil
	}
}

// Unlock ends the ownership and releases the mutex. It waits for that until ctx ends; it goes on without, and
// the Locker may be locked again at once in any case.
//
// ErrNotLocked: it is not locked. ErrLost: it was lost before, so what it protects may have been
// changed by others meanwhile. Another error is ctx's, or that of the release: the mutex is free
// then when its lease is over.
func (l *Locker) Unlock(ctx context.Context) error {
	l.mu.Lock()
	p, own := l.run, l.own
	if own == nil {
		l.mu.Unlock()
		return fmt.Errorf("unlock %s: %w", l.cfg.Mutex, ErrNotLocked)
	}
	l.run, l.own = nil, nil
	l.mu.Unlock()
	_ = own.Err() // by the clock it may be lost: that comes first
	own.end(ErrReleased)
	p.stop()
	err := context.Cause(own)
	if !errors.Is(err, ErrLost) {
		select {
		case <-p.done:
			err = p.err
		case <-ctx.Done():
			select {
			case <-p.done:
				err = p.err
			default:
				return fmt.Errorf("unlock %s, which goes on: %w", l.cfg.Mutex, ctx.Err())
			}
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLost):
		return fmt.Errorf("unlock %s: %w: what it protects may have been changed by others", l.cfg.Mutex, ErrLost)
	}
	return fmt.Errorf("unlock %s: %w", l.cfg.Mutex, err)
}

// Close ends a Lock that waits, and unlocks what is locked: Unlock, for as long as a request may take. It returns
// nil if the Locker is not locked. The Locker may be used again.
func (l *Locker) Close() error {
	l.mu.Lock()
	if l.own == nil {
		if l.run != nil {
			l.run.stop()
			l.run = nil
		}
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), l.c.timeout)
	defer cancel()
	err := l.Unlock(ctx)
	if errors.Is(err, ErrNotLocked) { // another was faster
		return nil
	}
	return err
}
