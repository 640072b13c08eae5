package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNotHolder is returned by Unlock to a Holder that does not have the lock.
var ErrNotHolder = errors.New("you do not own the lock")

// RegistryLock is the lock of one key, see [Registry.Obtain]. A holder that has it may lock it
// again; it is free when it is unlocked as often. Each Lock of a holder that has it begins
// the lease anew.
//
// A holder that still has the lock when its lease is over has lost it: another process may have it
// (its own clock counts here, which says so a little early). Its [RegistryLock.Context] has ended
// then, to lock again fails with ErrLost, and Unlock says so too. In Spring locking again would
// take the lock anew, if it is free, and the holder would not know that others had it in
// between.
type RegistryLock struct {
	r          *Registry
	key, mutex string
}

// Key returns the key that it was obtained by.
func (l *RegistryLock) Key() string { return l.key }

// Lock waits until h has the lock. If ctx ends before, the error matches ErrNotAcquired and that
// of ctx, and h will not have it later either: what may be left at the server is given up in the
// background. While the server cannot be asked it tries again; what it refuses is an error at
// once.
func (l *RegistryLock) Lock(ctx context.Context, h *Holder) error {
	_, failure, err := l.lock(ctx, h, true)
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil || !errors.Is(err, ctx.Err()):
		return fmt.Errorf("lock %s: %w", l.mutex, err)
	case failure == nil:
		return fmt.Errorf("lock %s: %w: %w", l.mutex, ErrNotAcquired, err)
	}
	return fmt.Errorf("lock %s: %w: %w (%s)", l.mutex, ErrNotAcquired, err, failure.Error())
}

// TryLock locks if nobody else has the lock: it asks the server once. False without an error means
// that another holder or process has it, or has its turn.
func (l *RegistryLock) TryLock(ctx context.Context, h *Holder) (bool, error) {
	_, _, err := l.lock(ctx, h, false)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, errElsewhere):
		return false, nil
	}
	return false, fmt.Errorf("try to lock %s: %w", l.mutex, err)
}

// TryLockFor waits for the lock as Lock does, but no longer than wait. False without an error
// means that another had it all that time; if the server could not be asked at the end, the error
// says why. A wait of 0 is TryLock.
func (l *RegistryLock) TryLockFor(ctx context.Context, h *Holder, wait time.Duration) (bool, error) {
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

// lock locks for h, in the process first, then at the server. With an error, elsewhere reports
// whether another had it last, and failure is what went wrong with the last request.
func (l *RegistryLock) lock(ctx context.Context, h *Holder, patient bool) (elsewhere bool, failure, err error) {
	if h == nil {
		return false, nil, errors.New("the holder is nil")
	}
	if err := ctx.Err(); err != nil {
		return false, nil, err
	}
	e, first, err := l.r.enter(ctx, l, h, patient)
	if err != nil {
		return true, nil, err
	}
	if first {
		elsewhere, failure, err = l.r.acquire(ctx, e, !patient)
	} else {
		failure, err = l.r.renew(ctx, e, !patient)
	}
	l.r.exit(e, err == nil)
	if err != nil && failure == nil && !elsewhere {
		failure = errUnanswered
	}
	return elsewhere, failure, err
}

// Unlock undoes one Lock of h. The last one ends the ownership context and releases the lock at the
// server. If ctx ends first, or has ended before, it returns the error of ctx, and the release
// continues in the background. Whatever it returns, but for ErrNotHolder, h has unlocked: the next
// holder in the process may go on.
//
// ErrNotHolder: h does not have the lock. ErrLost: its lease was over or broken, so what the lock
// protects may have been changed by others meanwhile. Another error is that of the release, as
// ErrUnavailable after Timeout: the lock is free when its lease is over, or the release gets
// through.
func (l *RegistryLock) Unlock(ctx context.Context, h *Holder) error {
	t, err := l.r.leave(l, h)
	if err != nil || t == nil {
		return err
	}
	<-t.own.Done()
	lost := errors.Is(context.Cause(t.own), ErrLost)
	if !lost {
		select {
		case <-t.run.done:
		default:
			select {
			case <-t.run.done:
			case <-ctx.Done():
				return fmt.Errorf("unlock %s: %w; it continues in the background", l.mutex, ctx.Err())
			}
		}
		lost, err = errors.Is(t.run.err, ErrLost), t.run.err
	}
	switch {
	case lost:
		return fmt.Errorf("unlock %s: %w: it was released in the store due to expiration; "+
			"the integrity of data protected by this lock may have been compromised", l.mutex, ErrLost)
	case err != nil:
		return fmt.Errorf("unlock %s: %w", l.mutex, err)
	}
	return nil
}

// IsHeldInThisProcess reports whether a holder of this registry has the lock and has not unlocked
// it yet, even if its lease is over.
func (l *RegistryLock) IsHeldInThisProcess() bool { return l.held(nil) != nil }

// Token returns the fencing token of the tenure that a holder of this registry has, even if its
// lease is over; 0 if none has the lock.
func (l *RegistryLock) Token() uint64 {
	if own := l.held(nil); own != nil {
		return own.token
	}
	return 0
}

// Context returns h's ownership context. It ends with the lease or, with the cause ErrReleased,
// when h unlocks for the last time; [Token] tells its fencing token. If h does not have the lock
// it has ended already, with the cause ErrNotHolder.
func (l *RegistryLock) Context(h *Holder) context.Context {
	if h != nil {
		if own := l.held(h); own != nil {
			return own
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrNotHolder)
	return ctx
}

// held returns the tenure of h, or of any holder if h is nil; nil if it has none.
func (l *RegistryLock) held(h *Holder) *ownership {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	e := l.r.locks[l.key]
	if e == nil || e.count == 0 || h != nil && e.holder != h {
		return nil
	}
	return e.tenure.own
}
