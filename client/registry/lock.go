package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrUnavailable) {
		return err == nil, err
	}
	if held := (*client.NotAcquiredError)(nil); errors.As(err, &held) && held.Unanswered {
		return false, fmt.Errorf("lock %s: %w: no reply in time", l.mutex, client.ErrUnavailable)
	}
	return false, nil
}

// lock locks for h.
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
		return l.lockAgain(ctx, place{l.mutex, h}, e, lock, wait)
	}
	lock, err = l.acquire(ctx, wait)
	r := l.r
	r.mu.Lock()
	if r.closing.Err() != nil {
		err = context.Cause(r.closing)
	}
	if err == nil {
		e.count, e.lock = 1, lock
	}
	<-e.asks
	r.leave(place{l.mutex, h}, e)
	r.mu.Unlock()
	if err != nil && lock != nil {
		_ = lock.Unlock(r.closing) // in the background
	}
	return err
}

// enter waits until no other call of h asks for the lock. It returns the lock if h has it, and counts
// one more Lock. If not, the caller asks the server.
func (l *Lock) enter(ctx context.Context, h *Holder, wait bool) (e *entry, lock *client.Lock, err error) {
	r, p := l.r, place{l.mutex, h}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing.Err() != nil {
		return nil, nil, context.Cause(r.closing)
	}
	e = r.entries[p]
	if e == nil {
		e = &entry{asks: make(chan struct{}, 1)}
		r.entries[p] = e
	}
	for e.users++; e.lock == nil; {
		select {
		case e.asks <- struct{}{}:
			return e, nil, nil
		default:
		}
		if !wait {
			r.leave(p, e)
			return nil, nil, &client.NotAcquiredError{Mutex: l.mutex}
		}
		r.mu.Unlock()
		select {
		case e.asks <- struct{}{}: // the other call has ended
			<-e.asks
		case <-ctx.Done():
			err = &client.NotAcquiredError{Mutex: l.mutex, Err: ctx.Err()}
		case <-r.closing.Done():
			err = context.Cause(r.closing)
		}
		r.mu.Lock()
		if err != nil {
			r.leave(p, e)
			return nil, nil, err
		}
	}
	e.count++
	r.leave(p, e)
	return e, e.lock, nil
}

// lockAgain renews the lease for a holder that has the lock.
func (l *Lock) lockAgain(ctx context.Context, p place, e *entry, lock *client.Lock, wait bool) error {
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
	last := l.r.undo(p, e) // not nil if h has unlocked during the call
	l.r.mu.Unlock()
	if last != nil {
		_ = last.Unlock(ctx)
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
			held := (*client.NotAcquiredError)(nil)
			unanswered := errors.As(last, &held) && held.Unanswered
			return nil, &client.NotAcquiredError{Mutex: l.mutex, Err: fmt.Errorf("%w (%w)", asking.Err(), last), Unanswered: unanswered}
		}
	}
}

// Unlock undoes one Lock of h. The last Unlock ends the ownership context and releases the lock at
// the server. If ctx ends before the release, Unlock returns the error of ctx, and the release
// continues in the background.
//
// Unlock returns ErrNotHolder if h does not have the lock. After any other error h has unlocked,
// and may lock again. Unlock returns client.ErrLost if the lease had ended
// or was broken: another owner may have changed what the lock protects. It returns
// client.ErrUnavailable if the server does not reply within the Timeout of the Client. The registry
// then repeats the release until it succeeds or the lease ends.
func (l *Lock) Unlock(ctx context.Context, h *Holder) error {
	r := l.r
	r.mu.Lock()
	e := r.entries[place{l.mutex, h}]
	if e == nil || e.lock == nil {
		r.mu.Unlock()
		return fmt.Errorf("%w at %s", ErrNotHolder, l.mutex)
	}
	last := r.undo(place{l.mutex, h}, e)
	r.mu.Unlock()
	if last == nil {
		return nil
	}
	err := last.Unlock(ctx)
	if errors.Is(err, client.ErrLost) {
		return fmt.Errorf("unlock %s: %w: it was released in the store due to expiration; the integrity of data protected by this lock may have been compromised", l.mutex, client.ErrLost)
	}
	return err
}

// IsHeldInThisProcess reports whether a holder of this registry has locked the lock and not
// unlocked it yet. The lease may have ended already.
func (l *Lock) IsHeldInThisProcess() bool {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	for p, e := range l.r.entries {
		if p.mutex == l.mutex && e.lock != nil {
			return true
		}
	}
	return false
}

// Context returns the ownership context of h. It ends when the lock is lost (cause client.ErrLost)
// or when h unlocks for the last time (cause client.ErrReleased). [client.Token] returns its
// fencing token. If h does not have the lock, Context returns a context that has ended with the
// cause ErrNotHolder.
func (l *Lock) Context(h *Holder) context.Context {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if e := l.r.entries[place{l.mutex, h}]; e != nil && e.lock != nil {
		return e.lock.Context()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrNotHolder)
	return ctx
}
