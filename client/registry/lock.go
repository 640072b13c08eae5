package registry

import (
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

// Lock waits until h has the lock. If h has it already, Lock renews the lease; if that fails, h still
// has the lock as often as before. If ctx ends first, the error matches client.ErrNotAcquired and
// the error of ctx, and the registry releases the attempt in the background. A holder
// that waits retries while the server is not available. If the server refuses the request, Lock returns the server's error reply
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
	held := (*client.NotAcquiredError)(nil)
	switch {
	case err == nil, ctx.Err() != nil, !errors.Is(err, context.DeadlineExceeded), errors.Is(err, client.ErrUnavailable):
		return err == nil, err
	case errors.As(err, &held) && !held.Unanswered:
		return false, nil
	}
	return false, fmt.Errorf("lock %s: %w: no reply in time", l.mutex, client.ErrUnavailable)
}

// lock locks for h.
func (l *Lock) lock(ctx context.Context, h *Holder, wait bool) error {
	switch {
	case ctx == nil:
		return errors.New("ctx is nil")
	case h == nil:
		return errors.New("the holder is nil")
	case ctx.Err() != nil:
		return &client.NotAcquiredError{Mutex: l.mutex, Err: ctx.Err()}
	}
	r, p := l.r, place{l.mutex, h}
	r.mu.Lock()
	e := r.entries[p]
	if e == nil && r.closing.Err() == nil {
		r.entries[p] = new(entry)
	}
	r.mu.Unlock()
	switch {
	case r.closing.Err() != nil:
		return context.Cause(r.closing)
	case e == nil:
		return l.first(ctx, p, wait)
	case e.lock == nil:
		return fmt.Errorf("lock %s: the holder asks for it in another call: %w", l.mutex, client.ErrInUse)
	}
	err := e.lock.Renew(ctx)
	if errors.Is(err, client.ErrReleased) { // by Close of the registry or of the Client
		err = fmt.Errorf("lock %s: %w", l.mutex, client.ErrClosed)
	}
	if err == nil {
		r.mu.Lock()
		e.count++
		r.mu.Unlock()
	}
	return err
}

// first locks for a holder that does not have the lock.
func (l *Lock) first(ctx context.Context, p place, wait bool) error {
	lock, err := l.acquire(ctx, wait)
	r := l.r
	r.mu.Lock()
	if r.closing.Err() != nil {
		err = context.Cause(r.closing)
	}
	if err == nil {
		r.entries[p] = &entry{1, lock}
	} else {
		delete(r.entries, p)
	}
	r.mu.Unlock()
	if err != nil && lock != nil {
		_ = lock.Unlock(r.closing) // in the background
	}
	return err
}

// acquire locks at the server.
func (l *Lock) acquire(ctx context.Context, wait bool) (*client.Lock, error) {
	r := l.r
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.closing, cancel)()
	options := []client.Option{client.WithTTL(r.cfg.ExpireAfter), client.WithTransition(0)}
	if !r.cfg.Renew {
		options = append(options, client.WithoutRenewal())
	}
	try := r.c.Lock
	if !wait || r.cfg.SpinEvery != 0 {
		try = r.c.TryLock
	}
	for last := error(nil); ; {
		lock, err := try(asking, l.mutex, options...)
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
	e.count--
	last := e.count == 0
	if last {
		delete(r.entries, place{l.mutex, h})
	}
	r.mu.Unlock()
	if !last {
		return nil
	}
	err := e.lock.Unlock(ctx)
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
