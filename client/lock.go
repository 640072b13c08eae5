package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// LockOption is an option of Do, TryDo, Lock and TryLock.
type LockOption func(*lockOptions)

type lockOptions struct {
	id              string
	ttl, transition time.Duration
	renewal         time.Duration
}

// WithTTL sets the TTL of the lease, 1 ms to 24 h; 0 means the Client's. The lease is renewed
// until Unlock. The TTL and the transition window are how long the mutex stays locked when the
// process dies.
func WithTTL(ttl time.Duration) LockOption { return func(o *lockOptions) { o.ttl = ttl } }

// WithTransition sets the transition window of the lease, up to 24 h; 0 means the Client's,
// NoTransition none. The owner may still renew in it, and nobody else may take the mutex.
func WithTransition(d time.Duration) LockOption { return func(o *lockOptions) { o.transition = d } }

// WithRenewal sets the longest time from the request that acquired or renewed the lease to the next
// renewal. 0 means the end of the TTL window, or a third of the lease before its end if that is
// earlier. A later time has no effect. With a third of the TTL, a renewal that fails is repeated
// before the TTL window ends.
func WithRenewal(d time.Duration) LockOption { return func(o *lockOptions) { o.renewal = d } }

// WithID sets the contender's id, 1 to 128 bytes; "" means counter:pid@host~random. No two
// contenders of a mutex may have the same at one time. In one Client the second is refused with
// ErrInUse. The id is in use until the mutex is released, also after a Lock whose context has
// ended.
func WithID(id string) LockOption { return func(o *lockOptions) { o.id = id } }

// Lock is a locked mutex: Simba's locker. It is safe for concurrent use.
type Lock struct {
	run *contenderRun
	own *ownership
}

// Do locks a mutex, runs work, and unlocks the mutex. It waits for the mutex until ctx ends,
// first come, first served. The context of work ends with ctx or with the ownership, whichever
// ends first. It has the values and the deadline of ctx, and [Token] returns its fencing token.
// Do returns when work has returned and the mutex is unlocked, or after Timeout if the server
// does not reply.
//
// Do returns the error of [Client.Lock], or the error of work unchanged. If the mutex was lost
// while work ran, the error matches ErrLost, and the error of work if there is one. Another owner
// may then have changed what the mutex protects. Check for ErrLost first, since work may have
// returned the error of its context.
//
// If work panics or ends its goroutine, Do unlocks the mutex, too. If the server does not confirm
// the release, Do logs that: the mutex is free when its lease ends.
//
// Locks are not reentrant: a Do of the same mutex inside work waits until ctx ends.
func (c *Client) Do(ctx context.Context, mutex string, work func(context.Context) error, opts ...LockOption) error {
	return c.do(ctx, mutex, work, false, opts)
}

// TryDo is like Do, and does not wait: if the mutex is not free, it returns the error of
// [Client.TryLock]. The error of work is returned unchanged. If work may itself fail to lock
// another mutex, compare the Mutex of the [NotAcquiredError].
func (c *Client) TryDo(ctx context.Context, mutex string, work func(context.Context) error, opts ...LockOption) error {
	return c.do(ctx, mutex, work, true, opts)
}

func (c *Client) do(ctx context.Context, mutex string, work func(context.Context) error, once bool, opts []LockOption) error {
	if work == nil {
		return fmt.Errorf("lock %s: work is nil", mutex)
	}
	worked := make(chan struct{}) // the mutex is not released before this is closed, even by Close
	end := sync.OnceFunc(func() { close(worked) })
	defer end() // if the mutex is not acquired
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
		both.cancel(ErrReleased) // goroutines that work has left end before the mutex is free
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
			l.run.c.log.Warn("unlock failed: the mutex is free when its lease ends", "mutex", l.run.mutex,
				"contender", l.run.id, "err", failure)
		}
	}()
	done := l.run.c.beginWork(l.run.terms, l.own)
	err = errWorkEnded
	defer func() { done(err) }()
	err = work(both)
	return err
}

// workContext is derived from the context of Do, and ends with the ownership, too. Its Err calls
// that of the ownership, which reads the clock.
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

// Lock waits until it owns the mutex, first come, first served. The caller unlocks the Lock:
//
//	l, err := c.Lock(ctx, "report")
//	if err != nil {
//		return err
//	}
//	defer l.Unlock(context.WithoutCancel(ctx))
//	return work(l.Context())
//
// [Client.Do] does that, and returns ErrLost if the mutex was lost.
//
// If ctx ends first, the error is a *[NotAcquiredError] that matches the error of ctx, and
// ErrUnavailable if the last request failed. Lock does not acquire the mutex after it has
// returned: it releases the attempt in the background, and Close waits for that. Lock retries
// while the server is not available. It returns a refusal of the server at once, and ErrClosed if
// the Client or the go-redis client is closed.
func (c *Client) Lock(ctx context.Context, mutex string, opts ...LockOption) (*Lock, error) {
	return c.lock(ctx, mutex, false, nil, nil, opts)
}

// TryLock sends one request and takes no queue entry. The error is a *[NotAcquiredError] if
// another contender owns the mutex or is next; otherwise it is as with Lock, or ErrUnavailable.
func (c *Client) TryLock(ctx context.Context, mutex string, opts ...LockOption) (*Lock, error) {
	return c.lock(ctx, mutex, true, nil, nil, opts)
}

// result is what came of a request to lock.
type result struct {
	owner   Owner      // in the reply
	own     *ownership // nil = another contender owns the mutex, or the owner is not known
	failure error      // of the last request
}

// lock locks a mutex, which is not released before worked is closed. end closes it. Both may be
// nil.
func (c *Client) lock(ctx context.Context, mutex string, once bool, worked <-chan struct{}, end func(), opts []LockOption) (*Lock, error) {
	var o lockOptions
	for _, set := range opts {
		set(&o)
	}
	t, err := c.terms(mutex, o.id, o.ttl, o.transition)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", mutex, err)
	}
	if o.renewal < 0 {
		return nil, fmt.Errorf("lock %s: Renewal is %v, less than 0", mutex, o.renewal)
	}
	if err := ctx.Err(); err != nil {
		return nil, &NotAcquiredError{Mutex: mutex, Err: err}
	}
	results := make(chan result, 1) // has the last
	put := func(a result) {
		select {
		case <-results:
		default:
		}
		results <- a
	}
	var r *contenderRun
	var owner Owner // in the last reply; used by the steps
	h := steps{
		acquired: func(o *ownership, _ State) { put(result{own: o}) },
		lost:     func(*ownership, State) { r.stop() }, // a Lock is one tenure
		waiting: func(o Owner) {
			owner = o
			put(result{owner: o})
		},
		failed: func(err error, final, owning bool) {
			if owning {
				return
			}
			put(result{owner: owner, failure: err})
			if final {
				r.stop()
			}
		},
	}
	if worked != nil {
		h.callbacksDone = func() <-chan struct{} { return worked }
	}
	r = c.newContenderRun(ctx, t, h)
	r.once, r.noQueue, r.renewal = once, once, o.renewal
	if err := r.begin(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", mutex, err)
	}
	var last result
	for {
		select {
		case last = <-results:
		case <-ctx.Done():
			r.stop()
			return nil, &NotAcquiredError{Mutex: mutex, Owner: last.owner, Err: joined(ctx.Err(), last.failure)}
		case <-r.quit:
			select {
			case last = <-results: // the reason
			default:
				return nil, fmt.Errorf("lock %s: %w", mutex, errClientClosed)
			}
		}
		switch {
		case last.own != nil:
			return &Lock{r, last.own}, nil
		case once && last.failure == nil:
			if end != nil {
				end()
			}
			<-r.done // nothing of the run is left: the id may be used again
			return nil, &NotAcquiredError{Mutex: mutex, Owner: last.owner}
		case last.failure != nil && (once || isFinal(last.failure)):
			r.stop()
			return nil, fmt.Errorf("lock %s: %w", mutex, last.failure)
		}
	}
}

// isFinal reports whether a retry does not help.
func isFinal(err error) bool { return errors.Is(err, ErrClosed) || refused(err) }

// joined returns err, with the failure if there is one.
func joined(err, failure error) error {
	if failure == nil {
		return err
	}
	return fmt.Errorf("%w (%w)", err, failure)
}

// Context returns the ownership context. It ends when the mutex is lost (cause ErrLost) or
// unlocked (cause ErrReleased). It has the values of the context of Lock and does not end with
// it. [Token] returns its fencing token.
func (l *Lock) Context() context.Context { return l.own }

// Token returns the fencing token of the tenure. It is larger than that of every earlier tenure
// of the mutex.
func (l *Lock) Token() uint64 { return l.own.token }

// Owner returns the id, the token and the windows of the lease. After the tenure it returns those
// of the last lease. While the machine is suspended the windows run on, so read them again after
// each wait.
func (l *Lock) Owner() Owner { return l.own.owner(l.run.terms) }

// Unlock ends the ownership and releases the mutex. If ctx ends first, it returns the error of
// ctx, and the release continues in the background. A second Unlock waits for the same release
// and returns its result.
//
// A context that is derived from [Lock.Context] ends with the lock, so it does not bound Unlock.
//
// Unlock returns ErrLost if the mutex was lost before: another owner may have changed what it
// protects. It returns ErrUnavailable if the server does not reply within Timeout. The mutex is
// then free when its lease ends, or when the release gets through.
func (l *Lock) Unlock(ctx context.Context) error {
	r := l.run
	_ = l.own.Err() // if the lease has ended by the clock, the mutex is lost
	r.stop()        // before the ownership ends, which is no loss then
	l.own.end(ErrReleased)
	if errors.Is(context.Cause(l.own), ErrLost) {
		return fmt.Errorf("unlock %s: %w: another owner may have changed what it protects", r.mutex, ErrLost)
	}
	if ctx.Value(runKey{r.run}) != nil { // it has ended, and must not end the wait
		ctx = context.Background()
	}
	return r.end(ctx, "unlock "+r.mutex)
}
