package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp/client"
)

// ErrNotHolder is returned by Unlock if the Holder does not have the lock.
var ErrNotHolder = errors.New("you do not own the lock")

// Lock is the lock of one key, see [Registry.Obtain]. A holder that has the lock may lock it again,
// which renews the lease. The lock is free when the holder has unlocked it as often as it has
// locked it. A Lock is safe for concurrent use.
//
// If a holder does not unlock before its lease ends, it loses the lock, and another process may
// lock it. The lease ends in this process a little earlier than at the server. Then [Lock.Context]
// ends, and Lock and Unlock of the holder return client.ErrLost. A lock of Spring's
// RedisLockRegistry hides the loss: if the lock is free, the holder acquires it once more.
type Lock struct {
	r     *Registry
	mutex string
}

// Lock waits until h has the lock. If ctx ends first, the error matches client.ErrNotAcquired and
// the error of ctx, and the registry releases the attempt in the background. Lock retries while the
// server is not available. If the server refuses the request, Lock returns the server's error reply
// at once.
func (l *Lock) Lock(ctx context.Context, h *Holder) error {
	return l.lock(ctx, h, true)
}

// TryLock locks if the lock is free. It sends at most one request. If it returns false and no
// error, another holder or process has the lock or is next.
func (l *Lock) TryLock(ctx context.Context, h *Holder) (bool, error) {
	err := l.lock(ctx, h, false)
	if held := (*client.NotAcquiredError)(nil); errors.As(err, &held) && held.Err == nil {
		return false, nil
	}
	return err == nil, err
}

// TryLockFor waits for the lock like Lock, but no longer than wait. If it returns false and no
// error, another holder or process has the lock or is next. If the last request failed, TryLockFor
// returns its error. With a wait of 0, TryLockFor is TryLock.
func (l *Lock) TryLockFor(ctx context.Context, h *Holder, wait time.Duration) (bool, error) {
	if ctx == nil || wait <= 0 {
		return l.TryLock(ctx, h)
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := l.lock(limited, h, true)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, client.ErrUnavailable) {
		return false, nil
	}
	return err == nil, err
}

// lock locks for h, first in the process, then at the server.
func (l *Lock) lock(ctx context.Context, h *Holder, wait bool) error {
	switch {
	case ctx == nil:
		return errors.New("ctx is nil")
	case h == nil:
		return errors.New("the holder is nil")
	}
	if err := ctx.Err(); err != nil {
		return &client.NotAcquiredError{Mutex: l.mutex, Err: err}
	}
	e, lock, err := l.enter(ctx, h, wait)
	switch {
	case err != nil:
		return err
	case lock != nil:
		return l.lockAgain(ctx, e, lock, wait)
	}
	lock, err = l.acquire(ctx, wait)
	r := l.r
	r.mu.Lock()
	if r.closing.Err() != nil {
		err = context.Cause(r.closing)
	}
	if err == nil {
		e.busy, e.count, e.lock = false, 1, lock
		r.nextLocked(l.mutex, e) // other calls of h
		r.mu.Unlock()
		return nil
	}
	r.mu.Unlock()
	if lock != nil {
		_ = lock.Unlock(r.closing) // in the background
	}
	r.free(l.mutex, e)
	return err
}

// enter waits until no other holder of the process has the lock. It returns the lock if h has it.
func (l *Lock) enter(ctx context.Context, h *Holder, wait bool) (*entry, *client.Lock, error) {
	r := l.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing.Err() != nil {
		return nil, nil, context.Cause(r.closing)
	}
	e := r.entries[l.mutex]
	if e == nil {
		e = new(entry)
		r.entries[l.mutex] = e
	}
	if e.admit(h) {
		return e, e.lock, nil
	}
	if !wait {
		return nil, nil, &client.NotAcquiredError{Mutex: l.mutex}
	}
	w := &waiter{h, make(chan struct{})}
	e.queue = append(e.queue, w)
	r.mu.Unlock()
	var err error
	select {
	case <-w.admitted:
	case <-ctx.Done():
		err = &client.NotAcquiredError{Mutex: l.mutex, Err: ctx.Err()}
	case <-r.closing.Done():
		err = context.Cause(r.closing)
	}
	r.mu.Lock()
	if i := slices.Index(e.queue, w); i >= 0 {
		e.queue = slices.Delete(e.queue, i, i+1)
		return nil, nil, err
	}
	return e, e.lock, nil // admitted, perhaps after ctx has ended
}

// lockAgain renews the lease for a holder that has the lock.
func (l *Lock) lockAgain(ctx context.Context, e *entry, lock *client.Lock, wait bool) error {
	err := lock.Renew(ctx)
	for wait && errors.Is(err, client.ErrUnavailable) {
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		case <-lock.Context().Done():
		}
		err = lock.Renew(ctx)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, client.ErrReleased): // by Close of the registry or of the Client
		err = fmt.Errorf("lock %s: %w", l.mutex, client.ErrClosed)
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		err = &client.NotAcquiredError{Mutex: l.mutex, Err: fmt.Errorf("%w (%w: no reply in time)", err, client.ErrUnavailable)}
	}
	l.r.mu.Lock()
	last := e.undo() // not nil if h has unlocked during the call
	l.r.mu.Unlock()
	if last != nil {
		_ = last.Unlock(ctx)
		l.r.free(l.mutex, e)
	}
	return err
}

// retryPause is the pause after a renewal that the server did not answer.
const retryPause = 100 * time.Millisecond

// acquire locks at the server.
func (l *Lock) acquire(ctx context.Context, wait bool) (*client.Lock, error) {
	r := l.r
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.closing, cancel)()
	options := []client.Option{client.WithTransition(0)}
	if !r.cfg.Renew {
		options = append(options, client.WithoutRenewal())
	}
	try := r.c.Lock
	if !wait || r.cfg.SpinEvery != 0 {
		try = r.c.TryLock
	}
	for last := error(nil); ; {
		ttl := cmp.Or(r.cfg.ExpireAfter, time.Duration(r.longest.Load()))
		lock, err := try(asking, l.mutex, append(options, client.WithTTL(ttl))...)
		long := (*client.TooLongError)(nil)
		if r.cfg.ExpireAfter == 0 && errors.As(err, &long) && 0 < long.Longest && long.Longest < ttl {
			r.longest.Store(int64(long.Longest))
			continue
		}
		again := errors.Is(err, client.ErrNotAcquired) || errors.Is(err, client.ErrUnavailable)
		if !again || !wait || r.cfg.SpinEvery == 0 {
			return lock, err
		}
		if last == nil || asking.Err() == nil { // else the end of ctx has cut the request
			last = err
		}
		select {
		case <-time.After(r.cfg.SpinEvery):
		case <-asking.Done():
			return nil, &client.NotAcquiredError{Mutex: l.mutex, Err: fmt.Errorf("%w (%w)", asking.Err(), last)}
		}
	}
}

// Unlock undoes one Lock of h. The last Unlock ends the ownership context and releases the lock at
// the server. If ctx ends before the release, Unlock returns the error of ctx, and the release
// continues in the background.
//
// Unlock returns ErrNotHolder if h does not have the lock. After any other error h has unlocked,
// and the next holder in the process may lock. Unlock returns client.ErrLost if the lease had ended
// or was broken: another owner may have changed what the lock protects. It returns
// client.ErrUnavailable if the server does not reply within the Timeout of the Client. The registry
// then repeats the release until it succeeds or the lease ends.
func (l *Lock) Unlock(ctx context.Context, h *Holder) error {
	r := l.r
	r.mu.Lock()
	e := r.entries[l.mutex]
	if h == nil || e == nil || e.holder != h || e.lock == nil {
		r.mu.Unlock()
		return fmt.Errorf("%w at %s", ErrNotHolder, l.mutex)
	}
	last := e.undo()
	r.mu.Unlock()
	if last == nil {
		return nil
	}
	err := last.Unlock(ctx)
	r.free(l.mutex, e)
	if errors.Is(err, client.ErrLost) {
		return fmt.Errorf("unlock %s: %w: it was released in the store due to expiration; the integrity of data protected by this lock may have been compromised", l.mutex, client.ErrLost)
	}
	return err
}

// IsHeldInThisProcess reports whether a holder of this registry has locked the lock and not
// unlocked it yet. The lease may have ended already.
func (l *Lock) IsHeldInThisProcess() bool { return l.held(nil) != nil }

// Context returns the ownership context of h. It ends when the lock is lost (cause client.ErrLost)
// or when h unlocks for the last time (cause client.ErrReleased). [client.Token] returns its
// fencing token. If h does not have the lock, Context returns a context that has ended with the
// cause ErrNotHolder.
func (l *Lock) Context(h *Holder) context.Context {
	if h != nil {
		if lock := l.held(h); lock != nil {
			return lock.Context()
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrNotHolder)
	return ctx
}

// held returns the lock at the server if h has it; a nil h means any holder.
func (l *Lock) held(h *Holder) *client.Lock {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	e := l.r.entries[l.mutex]
	if e == nil || h != nil && e.holder != h {
		return nil
	}
	return e.lock
}
