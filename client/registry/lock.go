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
// the error of ctx, and the registry releases the attempt in the background. A holder that waits
// retries while the server is not available. If the server refuses the request, Lock returns the
// server's error reply at once.
func (l *Lock) Lock(ctx context.Context, h *Holder) error {
	return l.lock(ctx, h, l.r.wait)
}

// TryLock locks if the lock is free. It sends at most one request. If it returns false and no
// error, another holder or process has the lock or is next.
func (l *Lock) TryLock(ctx context.Context, h *Holder) (bool, error) {
	return tried(ctx, l.lock(ctx, h, l.r.c.TryLock))
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
	return tried(ctx, l.lock(limited, h, l.r.wait))
}

// tried returns the results of TryLock and TryLockFor.
func tried(ctx context.Context, err error) (bool, error) {
	if errors.Is(err, client.ErrNotAcquired) && !errors.Is(err, client.ErrUnavailable) && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}

// lock locks for h. If h does not have the lock, it gets the lock by acquire.
func (l *Lock) lock(ctx context.Context, h *Holder, acquire func(context.Context, string, ...client.Option) (*client.Lock, error)) error {
	r := l.r
	switch {
	case ctx == nil:
		return errors.New("ctx is nil")
	case h == nil:
		return errors.New("the holder is nil")
	case r.closing.Err() != nil:
		return context.Cause(r.closing)
	case ctx.Err() != nil:
		return &client.NotAcquiredError{Mutex: l.mutex, Err: ctx.Err()}
	case !h.asking.TryLock():
		return fmt.Errorf("lock %s: the holder asks for a lock in another call: %w", l.mutex, client.ErrInUse)
	}
	defer h.asking.Unlock()
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.closing, cancel)()
	var err error
	e := l.entry(h)
	if e == nil {
		e = new(entry)
		e.lock, err = acquire(asking, l.mutex, r.options...)
	} else {
		err = l.renew(asking, e.lock)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing.Err() != nil {
		err = context.Cause(r.closing)
		if e.lock != nil {
			_ = e.lock.Unlock(r.closing) // in the background
		}
	}
	if err == nil {
		e.count++
		r.entries[place{l.mutex, h}] = e
	}
	return err
}

// renew begins a new lease for a holder that has the lock.
func (l *Lock) renew(ctx context.Context, lock *client.Lock) error {
	err := lock.Renew(ctx)
	switch {
	case errors.Is(err, client.ErrReleased): // by Close of the Client
		err = fmt.Errorf("lock %s: %w", l.mutex, client.ErrClosed)
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("lock %s: %w: no reply in time (%w)", l.mutex, client.ErrUnavailable, ctx.Err())
	}
	return err
}

// entry returns the entry of a holder; nil = the holder does not have the lock.
func (l *Lock) entry(h *Holder) *entry {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	return l.r.entries[place{l.mutex, h}]
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
	if e == nil {
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
	return e.lock.Unlock(ctx)
}

// IsHeldInThisProcess reports whether a holder of this registry has locked the lock and not
// unlocked it yet. The lease may have ended already.
func (l *Lock) IsHeldInThisProcess() bool {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	for p := range l.r.entries {
		if p.mutex == l.mutex {
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
	if e := l.entry(h); e != nil {
		return e.lock.Context()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrNotHolder)
	return ctx
}
