package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/internal/contend"
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
	r          *Registry
	key, mutex string
}

// Key returns the key of the lock.
func (l *Lock) Key() string { return l.key }

// Lock waits until h has the lock. If ctx ends first, the error matches client.ErrNotAcquired and
// the error of ctx, and the registry releases the attempt in the background. Lock retries while the
// server is not available. If the server refuses the request, Lock returns the server's error reply
// at once.
func (l *Lock) Lock(ctx context.Context, h *Holder) error {
	_, failure, err := l.lock(ctx, h, true)
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil || !errors.Is(err, ctx.Err()):
		return fmt.Errorf("lock %s: %w", l.mutex, err)
	case failure == nil:
		return fmt.Errorf("lock %s: %w: %w", l.mutex, client.ErrNotAcquired, err)
	}
	return fmt.Errorf("lock %s: %w: %w (%s)", l.mutex, client.ErrNotAcquired, err, failure.Error())
}

// TryLock locks if the lock is free. It sends at most one request. If it returns false and no
// error, another holder or process has the lock or is next.
func (l *Lock) TryLock(ctx context.Context, h *Holder) (bool, error) {
	_, _, err := l.lock(ctx, h, false)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, errElsewhere):
		return false, nil
	}
	return false, fmt.Errorf("try to lock %s: %w", l.mutex, err)
}

// TryLockFor waits for the lock like Lock, but no longer than wait. If it returns false and no
// error, another holder or process has the lock or is next. If the last request failed, TryLockFor
// returns its error. With a wait of 0, TryLockFor is TryLock.
func (l *Lock) TryLockFor(ctx context.Context, h *Holder, wait time.Duration) (bool, error) {
	if wait <= 0 {
		return l.TryLock(ctx, h)
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	elsewhere, failure, err := l.lock(limited, h, true)
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
		return false, fmt.Errorf("try to lock %s: %w", l.mutex, err)
	case elsewhere:
		return false, nil
	}
	return false, fmt.Errorf("try to lock %s for %v: %w", l.mutex, wait, failure)
}

// lock locks for h, first in the process, then at the server. If err is not nil, elsewhere reports
// whether another holder or process had the lock, and failure is the error of the last request.
func (l *Lock) lock(ctx context.Context, h *Holder, wait bool) (elsewhere bool, failure, err error) {
	if h == nil {
		return false, nil, errors.New("the holder is nil")
	}
	if err := ctx.Err(); err != nil {
		return false, nil, err
	}
	e, first, err := l.r.enter(ctx, l, h, wait)
	if err != nil {
		return true, nil, err
	}
	if first {
		elsewhere, failure, err = l.r.acquire(ctx, e, !wait)
	} else {
		failure, err = l.r.renew(ctx, e, !wait)
	}
	l.r.exit(e, err == nil)
	if err != nil && failure == nil && !elsewhere {
		failure = contend.ErrNoAnswer
	}
	return elsewhere, failure, err
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
	a, err := l.r.unlock(l, h)
	if err != nil || a == nil {
		return err
	}
	<-a.own.Done()
	lost := errors.Is(context.Cause(a.own), client.ErrLost)
	if !lost {
		select {
		case <-a.run.Done():
		default:
			select {
			case <-a.run.Done():
			case <-ctx.Done():
				return fmt.Errorf("unlock %s: %w; the release continues in the background", l.mutex, ctx.Err())
			}
		}
		err = a.run.Err()
		lost = errors.Is(err, client.ErrLost)
	}
	switch {
	case lost:
		return fmt.Errorf("unlock %s: %w: it was released in the store due to expiration; "+
			"the integrity of data protected by this lock may have been compromised", l.mutex, client.ErrLost)
	case err != nil:
		return fmt.Errorf("unlock %s: %w", l.mutex, err)
	}
	return nil
}

// IsHeldInThisProcess reports whether a holder of this registry has locked the lock and not
// unlocked it yet. The lease may have ended already.
func (l *Lock) IsHeldInThisProcess() bool { return l.held(nil) != nil }

// Token returns the fencing token if a holder of this registry has locked the lock and not unlocked
// it yet, else 0. The lease may have ended already.
func (l *Lock) Token() uint64 {
	if own := l.held(nil); own != nil {
		return client.Token(own)
	}
	return 0
}

// Context returns the ownership context of h. It ends when the lock is lost (cause client.ErrLost)
// or when h unlocks for the last time (cause client.ErrReleased). [client.Token] returns its
// fencing token. If h does not have the lock, Context returns a context that has ended with the
// cause ErrNotHolder.
func (l *Lock) Context(h *Holder) context.Context {
	if h != nil {
		if own := l.held(h); own != nil {
			return own
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrNotHolder)
	return ctx
}

// held returns the ownership context if h has the lock, else nil. A nil h means any holder.
func (l *Lock) held(h *Holder) context.Context {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	e := l.r.locks[l.key]
	if e == nil || e.count == 0 || h != nil && e.holder != h {
		return nil
	}
	return e.attempt.own
}
