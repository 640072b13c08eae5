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

// WithTTL sets the TTL of the lease, 1 ms to 24 h; 0 means the TTL of the Client. The Client renews
// the lease until Unlock. If the process dies, the mutex stays locked for the rest of the TTL and
// transition windows.
func WithTTL(ttl time.Duration) LockOption { return func(o *lockOptions) { o.ttl = ttl } }

// WithTransition sets the transition window of the lease, up to 24 h. 0 means the Transition of the
// Client; NoTransition means no window.
func WithTransition(d time.Duration) LockOption { return func(o *lockOptions) { o.transition = d } }

// WithRenewal sets the longest time between two renewals. With 0, the owner renews at the end of
// the TTL window, or when a third of the lease is left, whichever is earlier. A d that is longer
// than this time has no effect. If d is a third of the TTL, the owner can repeat a failed renewal
// before the TTL window ends.
func WithRenewal(d time.Duration) LockOption { return func(o *lockOptions) { o.renewal = d } }

// WithID sets the contender's id, 1 to 128 bytes; "" means counter:pid@host~random. Two contenders
// of a mutex must not have the same id at the same time. A Client refuses the second one with
// ErrInUse. If the context of Lock ends, the Client releases the attempt in the background. The id
// stays in use until the release has ended.
func WithID(id string) LockOption { return func(o *lockOptions) { o.id = id } }

// Lock is a locked mutex, like the locker of Simba, a lock library for the JVM. It is safe for
// concurrent use.
type Lock struct {
	run *contenderRun
	own *ownership
}

// Do locks a mutex like [Client.Lock], runs work, and unlocks the mutex. The context of work ends
// with ctx or with the ownership, whichever ends first. It has the values and the deadline of ctx,
// and [Token] returns its fencing token. Do waits for the reply to the unlock at most for
// Options.Timeout.
//
// If Do cannot lock the mutex, it returns the error of [Client.Lock]. If the mutex was lost while
// work ran, the error matches ErrLost, and also the error of work if there is one. Another owner
// may then have changed what the mutex protects. In all other cases Do returns the error of work
// unchanged. Check for ErrLost first, since work may return the error of its context.
//
// Do unlocks the mutex also if work panics or ends its goroutine. If the server does not confirm
// the unlock, Do logs a warning. The mutex is then free when its lease ends. Locks are not
// reentrant: a Do of the same mutex inside work waits until ctx ends.
func (c *Client) Do(ctx context.Context, mutex string, work func(context.Context) error, opts ...LockOption) error {
	return c.do(ctx, mutex, work, false, opts)
}

// TryDo is like Do, but locks with [Client.TryLock], which does not wait. If TryDo returns a
// [NotAcquiredError], compare its Mutex with mutex: work may have tried to lock another mutex, and
// returned that error.
func (c *Client) TryDo(ctx context.Context, mutex string, work func(context.Context) error, opts ...LockOption) error {
	return c.do(ctx, mutex, work, true, opts)
}

func (c *Client) do(ctx context.Context, mutex string, work func(context.Context) error, once bool, opts []LockOption) error {
	if work == nil {
		return fmt.Errorf("lock %s: work is nil", mutex)
	}
	worked := make(chan struct{}) // until it is closed, not even Close releases the mutex
	end := sync.OnceFunc(func() { close(worked) })
	defer end() // if the mutex is not acquired, l.do does not call end
	l, err := c.lock(ctx, mutex, once, worked, end, opts)
	if err != nil {
		return err
	}
	return l.do(ctx, work, end)
}

func (l *Lock) do(ctx context.Context, work func(context.Context) error, end func()) (err error) {
	both := &workContext{own: l.own}
	both.Context, both.cancel = context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.own, func() { both.cancel(context.Cause(l.own)) })
	defer func() { // also if work panics
		_ = both.Err()
		both.cancel(ErrReleased) // before the unlock, for goroutines that work has left running
		stop()
		end()
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

// workContext is the context of the work of Do. It ends with the context of Do or with the
// ownership. Its Err calls the Err of the ownership, which reads the clock.
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

// Lock waits until it owns the mutex. The server grants the mutex first come, first served. The
// caller must unlock the Lock:
//
//	l, err := c.Lock(ctx, "report")
//	if err != nil {
//		return err
//	}
//	defer l.Unlock(context.WithoutCancel(ctx))
//	return work(l.Context())
//
// [Client.Do] does all this, and returns ErrLost if the mutex was lost.
//
// If ctx ends first, the error is a *[NotAcquiredError] that matches the error of ctx. If the last
// request failed, the error also matches ErrUnavailable. The Client then releases the attempt in
// the background, and Close waits for the release.
//
// Lock retries while the server is not available. If the server refuses the request, Lock returns
// the server's error reply at once. Lock returns ErrClosed if the Client or the go-redis client is
// closed.
func (c *Client) Lock(ctx context.Context, mutex string, opts ...LockOption) (*Lock, error) {
	return c.lock(ctx, mutex, false, nil, nil, opts)
}

// TryLock sends one request and takes no queue entry. If another contender owns the mutex or is
// next, the error is a *[NotAcquiredError]. If the server does not answer, TryLock returns
// ErrUnavailable. For all other errors see [Client.Lock].
func (c *Client) TryLock(ctx context.Context, mutex string, opts ...LockOption) (*Lock, error) {
	return c.lock(ctx, mutex, true, nil, nil, opts)
}

// result is the outcome of a request to lock.
type result struct {
	owner   Owner      // the owner in the last reply
	own     *ownership // nil = not acquired
	failure error      // the error of the last request
}

// lock locks a mutex. If once is true, lock sends one request and takes no queue entry. If worked
// is not nil, the run releases the mutex only after worked is closed. end is then a function that
// closes worked.
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
	results := make(chan result, 1) // holds the newest result only
	put := func(a result) {
		select {
		case <-results:
		default:
		}
		results <- a
	}
	var r *contenderRun
	var owner Owner // the owner in the last reply; only the steps use it
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
			case last = <-results: // the reason why the run has stopped
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
			<-r.done // so that the caller may use the id again
			return nil, &NotAcquiredError{Mutex: mutex, Owner: last.owner}
		case last.failure != nil && (once || isFinal(last.failure)):
			r.stop()
			return nil, fmt.Errorf("lock %s: %w", mutex, last.failure)
		}
	}
}

// isFinal reports whether it is useless to retry after err.
func isFinal(err error) bool { return errors.Is(err, ErrClosed) || refused(err) }

// joined returns an error that matches err. If failure is not nil, the error matches failure, too.
func joined(err, failure error) error {
	if failure == nil {
		return err
	}
	return fmt.Errorf("%w (%w)", err, failure)
}

// Context returns the ownership context. It ends when the mutex is lost (cause ErrLost) or unlocked
// (cause ErrReleased). It has the values of the ctx of [Client.Lock], but does not end when ctx
// ends. [Token] returns its fencing token.
func (l *Lock) Context() context.Context { return l.own }

// Token returns the fencing token of the tenure.
func (l *Lock) Token() uint64 { return l.own.token }

// Owner returns the contender's id, the token, and the windows of the present lease. After the
// tenure, it returns the windows of the last lease. Do not keep the result for long: if the machine
// is suspended after the call, the windows end earlier than the result says.
func (l *Lock) Owner() Owner { return l.own.owner(l.run.terms) }

// Unlock ends the ownership and releases the mutex. If ctx ends first, it returns the error of ctx,
// and the release continues in the background. A second Unlock waits for the same release and
// returns its result.
//
// If ctx is derived from [Lock.Context], Unlock ignores the end of ctx, because Unlock itself ends
// it.
//
// Unlock returns ErrLost if the mutex was lost before: another owner may have changed what the
// mutex protects. It returns ErrUnavailable if the server does not reply within Options.Timeout.
// The mutex is then free when its lease ends, or earlier if a repeated release succeeds.
func (l *Lock) Unlock(ctx context.Context) error {
	r := l.run
	_ = l.own.Err() // ends the ownership with ErrLost if the lease has ended
	r.stop()        // before own.end, which the run would otherwise treat as a loss
	l.own.end(ErrReleased)
	if errors.Is(context.Cause(l.own), ErrLost) {
		return fmt.Errorf("unlock %s: %w: another owner may have changed what it protects", r.mutex, ErrLost)
	}
	if ctx.Value(runKey{r.run}) != nil { // derived from Lock.Context, which has just ended
		ctx = context.Background()
	}
	return r.end(ctx, "unlock "+r.mutex)
}
