package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// LockOption changes how a mutex is locked.
type LockOption func(*lockOptions)

type lockOptions struct {
	id              string
	ttl, transition time.Duration
}

// WithTTL sets the TTL of the lease, 1 ms to 24 h; 0 means the Client's. The lease is renewed until
// Unlock: the TTL only says, with the transition, how long the mutex stays locked when the process
// dies.
func WithTTL(ttl time.Duration) LockOption { return func(o *lockOptions) { o.ttl = ttl } }

// WithTransition sets the transition window of the lease, up to 24 h; 0 means the Client's,
// NoTransition none. The owner may still renew in it, and nobody else may take the mutex.
func WithTransition(d time.Duration) LockOption { return func(o *lockOptions) { o.transition = d } }

// WithID sets the contender's id, which others see as the owner: 1 to 128 bytes; "" means
// counter:pid@host~random. No two that contend for a mutex at a time may have the same: in one
// Client the second is refused with ErrInUse. The id is in use until the mutex is released, also
// after a Lock whose context has ended.
func WithID(id string) LockOption { return func(o *lockOptions) { o.id = id } }

// Lock is a mutex that was locked: Simba's locker. Safe for concurrent use.
type Lock struct {
	pursuit *pursuit
	own     *ownership
}

// Do locks a mutex, runs work, and unlocks it. It waits for the mutex until ctx ends, first come,
// first served. The context of work ends with ctx or with the ownership, whichever ends first; it
// has the values and the deadline of ctx, and [Token] tells the fencing token. Do returns when work
// has returned and the mutex is unlocked, or after Timeout if the server does not answer.
//
// The error is that of [Client.Lock]; or that of work as it is; or it matches ErrLost, and the
// error of work if there is one: the mutex was lost while work ran, so others may have changed what
// it protects. Ask for ErrLost first: work may have returned the error of its context. If work
// panics or ends its goroutine, the mutex is unlocked, too. A mutex that could not be unlocked is
// free when its lease is over; the log says so.
//
// Locks are not reentrant: a Do inside work of the same mutex waits until ctx ends.
func (c *Client) Do(ctx context.Context, mutex string, work func(context.Context) error, opts ...LockOption) error {
	return c.do(ctx, mutex, work, false, opts)
}

// TryDo is Do of a mutex that is free: otherwise it does not wait, and the error is that of
// [Client.TryLock]. If work may fail to lock another mutex, compare the Mutex of the
// [NotAcquiredError]: work's own error is returned as it is.
func (c *Client) TryDo(ctx context.Context, mutex string, work func(context.Context) error, opts ...LockOption) error {
	return c.do(ctx, mutex, work, true, opts)
}

func (c *Client) do(ctx context.Context, mutex string, work func(context.Context) error, once bool, opts []LockOption) error {
	if work == nil {
		return fmt.Errorf("lock %s: work is nil", mutex)
	}
	worked := make(chan struct{}) // until then the mutex is not released, whatever is closed
	end := sync.OnceFunc(func() { close(worked) })
	defer end() // if it is not acquired
	l, err := c.lock(ctx, mutex, once, worked, end, opts)
	if err != nil {
		return err
	}
	return l.do(ctx, work, end)
}

func (l *Lock) do(ctx context.Context, work func(context.Context) error, worked func()) (err error) {
	both := &workContext{own: l.own}
	both.Context, both.cancel = context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.own, func() { both.cancel(context.Cause(l.own)) })
	defer func() { // also if work panics
		_ = both.Err()
		both.cancel(ErrReleased) // what work has left behind ends before the mutex is free
		stop()
		worked()
		failure := l.Unlock(context.WithoutCancel(ctx))
		switch {
		case failure == nil:
		case errors.Is(failure, ErrLost) && err != nil:
			err = fmt.Errorf("%w; the work: %w", failure, err)
		case errors.Is(failure, ErrLost):
			err = failure
		default:
			l.pursuit.c.log.Warn("a mutex could not be unlocked: it is free when its lease is over", "mutex", l.pursuit.mutex,
				"contender", l.pursuit.id, "err", failure)
		}
	}()
	return work(both)
}

// workContext is derived from the context of Do, and ends with the ownership, too. Its Err asks the
// ownership, which looks at the clock.
type workContext struct {
	context.Context
	cancel context.CancelCauseFunc
	own    *ownership
}

// Err implements context.Context.
func (w *workContext) Err() error {
	if w.own.Err() != nil {
		w.cancel(context.Cause(w.own))
	}
	return w.Context.Err()
}

// Value implements context.Context.
func (w *workContext) Value(key any) any {
	if key == (tokenKey{}) {
		return w.own.token
	}
	return w.Context.Value(key)
}

// Lock waits until it owns the mutex, first come, first served. Unlock what it returns:
//
//	l, err := c.Lock(ctx, "report")
//	if err != nil {
//		return err
//	}
//	defer l.Unlock(context.WithoutCancel(ctx))
//	return work(l.Context())
//
// [Client.Do] does that, and says if the mutex was lost.
//
// If ctx ends first, the error is a *[NotAcquiredError] that matches that of ctx, and
// ErrUnavailable if the server could not be asked. Lock does not acquire after it has returned:
// what may be left of the attempt is released in the background, and Close waits for it. While the
// server cannot be asked Lock goes on trying. What the server refuses is returned at once.
// ErrClosed: the Client or the go-redis client is closed.
func (c *Client) Lock(ctx context.Context, mutex string, opts ...LockOption) (*Lock, error) {
	return c.lock(ctx, mutex, false, nil, nil, opts)
}

// TryLock asks once and takes no place in the queue. The error is a *[NotAcquiredError] if another
// owns the mutex, or is next; otherwise it is as with Lock, or ErrUnavailable.
func (c *Client) TryLock(ctx context.Context, mutex string, opts ...LockOption) (*Lock, error) {
	return c.lock(ctx, mutex, true, nil, nil, opts)
}

// attempt is what comes of locking. Only the pursuit's goroutine writes it, and before it sends on
// decided.
type attempt struct {
	owner   Owner      // who has it
	own     *ownership // nil = another, or not known
	failure error      // of the last request
}

// lock locks. What it has is not released before worked is closed, which end does; both may be nil.
func (c *Client) lock(ctx context.Context, mutex string, once bool, worked <-chan struct{}, end func(), opts []LockOption) (*Lock, error) {
	var o lockOptions
	for _, set := range opts {
		set(&o)
	}
	t, err := c.terms(mutex, o.id, o.ttl, o.transition)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", mutex, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, &NotAcquiredError{Mutex: mutex, Err: err}
	}
	news := make(chan attempt, 1) // the last
	say := func(a attempt) {
		select {
		case <-news:
		default:
		}
		news <- a
	}
	var p *pursuit
	var owner Owner // as seen last; used by the hooks
	h := hooks{
		acquired: func(o *ownership, _ State) { say(attempt{own: o}) },
		lost:     func(*ownership, State) { p.stop() }, // it is not to be had again behind the holder's back
		waiting: func(o Owner) {
			owner = o
			say(attempt{owner: o})
		},
		failed: func(err error, final bool) {
			if p.own == nil {
				say(attempt{owner: owner, failure: err})
				if final {
					p.stop()
				}
			}
		},
	}
	if worked != nil {
		h.settled = func() <-chan struct{} { return worked }
	}
	p = c.newPursuit(ctx, t, h)
	p.once, p.noQueue = once, once
	if err := p.begin(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", mutex, err)
	}
	var last attempt
	for {
		select {
		case last = <-news:
		case <-ctx.Done():
			p.stop()
			return nil, &NotAcquiredError{Mutex: mutex, Owner: last.owner, Err: joined(ctx.Err(), last.failure)}
		case <-p.quit:
			select {
			case last = <-news: // that is why
			default:
				return nil, fmt.Errorf("lock %s: %w", mutex, errClientClosed)
			}
		}
		switch {
		case last.own != nil:
			return &Lock{p, last.own}, nil
		case once && last.failure == nil:
			if end != nil {
				end()
			}
			<-p.done // nothing is left of it: the id may be used again
			return nil, &NotAcquiredError{Mutex: mutex, Owner: last.owner}
		case last.failure != nil && (once || isFinal(last.failure)):
			p.stop()
			return nil, fmt.Errorf("lock %s: %w", mutex, last.failure)
		}
	}
}

// isFinal reports whether to ask again is in vain.
func isFinal(err error) bool { return errors.Is(err, ErrClosed) || refused(err) }

// joined is the first error, with the second if there is one.
func joined(err, failure error) error {
	if failure == nil {
		return err
	}
	return fmt.Errorf("%w (%w)", err, failure)
}

// Context ends when the mutex is lost (cause ErrLost) or unlocked (cause ErrReleased). It does not
// end with the context of Lock, whose values it has. [Token] tells its fencing token.
func (l *Lock) Context() context.Context { return l.own }

// Token is the fencing token of the tenure: larger than that of every tenure of the mutex before.
func (l *Lock) Token() uint64 { return l.own.token }

// Unlock ends the ownership and releases the mutex. If ctx ends first, it returns the error of ctx,
// and the release continues in the background. A second Unlock is harmless: it waits for the same
// release and returns its result.
//
// A context that is derived from [Lock.Context] ends with the lock, and bounds nothing.
//
// ErrLost: the mutex was lost before, so others may have changed what it protects. Another error is
// that of ctx or ErrUnavailable (the server has not answered within Timeout): the mutex is free
// when its lease is over, or when the release gets through.
func (l *Lock) Unlock(ctx context.Context) error {
	p := l.pursuit
	_ = l.own.Err() // by the clock it may be lost: that comes first
	p.stop()        // before the ownership ends: then that is no loss
	l.own.end(ErrReleased)
	if errors.Is(context.Cause(l.own), ErrLost) {
		return fmt.Errorf("unlock %s: %w: others may have changed what it protects", p.mutex, ErrLost)
	}
	if ctx.Value(runKey{p.run}) != nil { // it ends with the ownership, and says nothing of how long to wait
		ctx = context.Background()
	}
	return p.end(ctx, "unlock "+p.mutex)
}
