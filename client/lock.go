package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Lock is a locked mutex. It is safe for concurrent use.
type Lock struct{ l *lease }

// Do locks a mutex like [Client.Lock], runs f, and unlocks the mutex. The context of f ends with ctx
// or with the ownership, whichever ends first, and [Token] returns its fencing token. Do waits for
// the reply to the unlock at most for Options.Timeout.
//
// Do waits for the mutex, and for a server that does not answer, until ctx ends. If Do cannot lock
// the mutex, it returns the error of [Client.Lock]. If the mutex was lost while f ran, the error
// matches ErrLost, and also the error of f if there is one. Another owner may then have changed what
// the mutex protects. In all other cases Do returns the error of f unchanged. Check for ErrLost
// first, since f may return the error of its context.
//
// Do unlocks the mutex also if f panics or ends its goroutine. If the server does not confirm the
// unlock, Do logs a warning. The mutex is then free when its lease ends. Locks are not reentrant: a
// Do of the same mutex inside f waits until ctx ends.
func (c *Client) Do(ctx context.Context, mutex string, f func(context.Context) error, o ...Option) error {
	return c.do(ctx, mutex, false, f, o)
}

// TryDo is like Do, but locks with [Client.TryLock], which does not wait. If TryDo returns a
// [NotAcquiredError], compare its Mutex with mutex: f may have tried to lock another mutex, and
// returned that error.
func (c *Client) TryDo(ctx context.Context, mutex string, f func(context.Context) error, o ...Option) error {
	return c.do(ctx, mutex, true, f, o)
}

func (c *Client) do(ctx context.Context, mutex string, try bool, f func(context.Context) error, o []Option) error {
	if f == nil {
		return fmt.Errorf("lock %s: f is nil", mutex)
	}
	l, err := c.lock(ctx, mutex, try, false, o)
	if err != nil {
		return err
	}
	err, failure := l.run(f)
	switch {
	case errors.Is(failure, ErrLost) && err != nil:
		return fmt.Errorf("%w; the work: %w", failure, err)
	case errors.Is(failure, ErrLost):
		return failure
	}
	return err
}

// run runs work of the user, and releases the mutex. It waits for the release at most for
// Options.Timeout. err is the error of the work, failure that of the release.
func (l *lease) run(f func(context.Context) error) (err, failure error) {
	defer func() { failure = l.free() }() // also if f panics
	return l.once(f), nil
}

// once runs work of the user one time.
func (l *lease) once(f func(context.Context) error) (err error) {
	began := now()
	err = errWorkEnded
	defer func() {
		l.c.report(l.Context, l.terms, Event{Kind: "WorkDone", Token: l.token, Took: now().since(began), Err: err})
	}()
	err = f(l)
	return err
}

// free unlocks, and logs it if the release fails or is not confirmed in time.
func (l *lease) free() error {
	err := l.unlock(context.WithoutCancel(l.Context))
	if err != nil && !errors.Is(err, ErrLost) {
		l.c.log.Warn("unlock failed: the mutex is free when its lease ends", "mutex", l.terms.mutex, "contender", l.terms.id, "err", err)
	}
	return err
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
// request failed, or no request had a reply, the error also matches ErrUnavailable. The Client then
// releases the attempt in the background, and Close waits for the release.
//
// Lock retries while the server is not available. If the server refuses the request, Lock returns
// the server's error reply at once. Lock returns ErrClosed if the Client or the go-redis client is
// closed.
func (c *Client) Lock(ctx context.Context, mutex string, o ...Option) (*Lock, error) {
	return c.newLock(ctx, mutex, false, o)
}

// TryLock sends one request and takes no queue entry. If another contender owns the mutex or is
// next, the error is a *[NotAcquiredError]. If the server does not answer, TryLock returns
// ErrUnavailable. For all other errors see [Client.Lock].
func (c *Client) TryLock(ctx context.Context, mutex string, o ...Option) (*Lock, error) {
	return c.newLock(ctx, mutex, true, o)
}

func (c *Client) newLock(ctx context.Context, mutex string, try bool, o []Option) (*Lock, error) {
	l, err := c.lock(ctx, mutex, try, true, o)
	if err != nil {
		return nil, err
	}
	return &Lock{l}, nil
}

// lock locks a mutex for one tenure. If auto is set, the tenure outlives ctx, and nobody waits for work
// before the release.
func (c *Client) lock(ctx context.Context, mutex string, try, auto bool, o []Option) (*lease, error) {
	t, of, err := c.enter(ctx, mutex, try, o)
	if err != nil {
		return nil, lockError(ctx, mutex, Owner{}, err, nil)
	}
	a := &attempt{c: c, terms: t, of: of, try: try, auto: auto}
	l, err := a.run(ctx)
	if err != nil {
		a.giveUp(ctx)
		failure := a.failure
		if failure == nil && !a.began.at.IsZero() && !a.answered {
			failure = errNoAnswer
		}
		return nil, lockError(ctx, mutex, a.owner, err, failure)
	}
	return l, nil
}

// lockError returns the error of Lock. failure is the error of the last request.
func lockError(ctx context.Context, mutex string, owner Owner, err, failure error) error {
	switch {
	case errors.Is(err, errHeld):
		return &NotAcquiredError{Mutex: mutex, Owner: owner}
	case ctx == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()):
		return fmt.Errorf("lock %s: %w", mutex, err)
	case failure != nil:
		err = fmt.Errorf("%w (%w)", err, failure)
	}
	return &NotAcquiredError{Mutex: mutex, Owner: owner, Err: err}
}

// enter adds a contender with its terms. If an earlier one with its id is still being released, or if
// the server does not answer for the name of the user, enter tries again until ctx ends, unless try is
// set.
func (c *Client) enter(ctx context.Context, mutex string, try bool, o []Option) (*terms, *contender, error) {
	t, err := c.terms(mutex, o)
	if err == nil {
		err = c.callable(ctx)
	}
	var failure error // of the last request
	for t != nil && err == nil && t.id == "" {
		var prefix string
		switch prefix, err = c.prefix(ctx); {
		case err == nil:
			t.id = defaultID(prefix)
		case errors.Is(err, ErrUnavailable) && !try:
			failure = err
			c.noteFailure(t, err, true)
			err = c.sleep(ctx, time.Second, nil)
		case failure == nil && isContextError(err):
			failure = errNoAnswer
		}
	}
	switch {
	case failure != nil && isContextError(err):
		return nil, nil, fmt.Errorf("%w (%w)", err, failure)
	case err != nil:
		return nil, nil, err
	}
	for {
		of, err := c.contenders.add(t)
		if try || !errors.Is(err, errLeaving) {
			return t, of, err
		}
		if err := c.sleep(ctx, retryPause, nil); err != nil {
			return nil, nil, err
		}
	}
}

// Context returns the ownership context. It ends when the mutex is lost (cause ErrLost) or unlocked
// (cause ErrReleased). It has the values of the ctx of [Client.Lock], but does not end when ctx
// ends. [Token] returns its fencing token.
func (l *Lock) Context() context.Context { return l.lease() }

// Token returns the fencing token of the tenure.
func (l *Lock) Token() uint64 { return l.lease().token }

// Owner returns the contender's id, the token, and the windows of the present lease. After the
// tenure, it returns the windows of the last lease. Do not keep the result for long: if the machine
// is suspended after the call, the windows end earlier than the result says.
func (l *Lock) Owner() Owner { return l.lease().owner() }

// Renew renews the lease now. Only a Lock with [WithoutRenewal] needs it. The error is ErrLost or
// ErrReleased if the tenure has ended, the error of ctx, ErrUnavailable, or the server's error reply.
func (l *Lock) Renew(ctx context.Context) error {
	if err := l.lease().renew(ctx); err != nil {
		return fmt.Errorf("renew %s: %w", l.l.terms.mutex, err)
	}
	return nil
}

// Unlock ends the ownership and releases the mutex. If ctx ends first, it returns the error of ctx,
// and the release continues in the background. A second Unlock waits for the same release and
// returns its result. If ctx is derived from [Lock.Context], Unlock ignores the end of ctx, because
// Unlock itself ends it.
//
// Unlock returns ErrLost if the mutex was lost before: another owner may have changed what the
// mutex protects. It returns ErrUnavailable if the server does not reply within Options.Timeout.
// The mutex is then free when its lease ends, or earlier if a repeated release succeeds.
func (l *Lock) Unlock(ctx context.Context) error { return l.lease().unlock(ctx) }

func (l *Lock) lease() *lease {
	if l == nil || l.l == nil {
		panic("client: the zero Lock is not locked: use Client.Lock")
	}
	return l.l
}

func (l *lease) unlock(ctx context.Context) error {
	if ctx == nil {
		l.release()
		return fmt.Errorf("unlock %s: ctx is nil; the release continues in the background", l.terms.mutex)
	}
	if Token(ctx) == l.token { // derived from the ownership context, which ends now
		ctx = context.WithoutCancel(ctx)
	}
	began := now()
	if first := l.beginRelease(); first && errors.Is(l.cause(), ErrReleased) && ctx.Err() == nil {
		l.releaseAtServer(ctx)
	} else if first {
		go l.releaseAtServer(context.WithoutCancel(ctx))
	}
	if errors.Is(l.cause(), ErrLost) {
		return fmt.Errorf("unlock %s: %w: another owner may have changed what it protects", l.terms.mutex, ErrLost)
	}
	select {
	case <-l.gone:
	case <-ctx.Done():
	case <-time.After(l.c.timeout - now().since(began)):
	}
	err := errNoAnswer
	select {
	case <-l.gone:
		err = l.failure
	default:
		if ctx.Err() != nil {
			err = fmt.Errorf("%w; the release continues in the background", ctx.Err())
		}
	}
	if err != nil {
		return fmt.Errorf("unlock %s: %w", l.terms.mutex, err)
	}
	return nil
}
