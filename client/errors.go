package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

// Errors that errors.Is matches.
var (
	// ErrLost is the cause of an ownership context if the lease was not renewed in time, or if
	// SIMBA.BREAK ended it. Another contender may own the mutex. Unlock and Do return ErrLost if
	// the mutex was lost.
	ErrLost = errors.New("mutex lost")
	// ErrReleased is the cause of an ownership context if the client releases the mutex.
	ErrReleased = errors.New("mutex released")
	// ErrNotAcquired is matched by a [NotAcquiredError].
	ErrNotAcquired = errors.New("mutex not acquired")
	// ErrUnavailable is returned when the server cannot be reached, does not reply in time, or
	// cannot reach its store. A later attempt may succeed. An ErrUnavailable does not match
	// context.DeadlineExceeded.
	ErrUnavailable = errors.New("server unavailable")
	// ErrInUse is returned if another contender of the Client has the same mutex and id.
	ErrInUse = errors.New("already in use")
	// ErrClosed is returned when the Client, the Registry or the go-redis client is closed.
	ErrClosed = errors.New("closed")
)

// NotAcquiredError is returned by TryLock when another contender owns the mutex or is next, and by
// Lock when its context ends first. It matches ErrNotAcquired and Err.
type NotAcquiredError struct {
	Mutex string
	// Owner is the owner in the last reply. The zero Owner means that another waiter is next, or
	// that the owner is not known.
	Owner Owner
	// Err is the error of the context that ended the wait. If the last request failed, Err matches
	// the error of the request, too. If no request had a reply, Err matches ErrUnavailable. nil
	// means that there was no wait.
	Err error
}

// Error implements error.
func (e *NotAcquiredError) Error() string {
	text := "lock " + e.Mutex + ": " + ErrNotAcquired.Error()
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	switch {
	case !e.Owner.IsZero():
		text += ", " + e.Owner.ID + " owns it"
	case e.Err == nil:
		text += ", another waiter is next"
	}
	return text
}

// Unwrap returns the errors that errors.Is and errors.As compare.
func (e *NotAcquiredError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrNotAcquired}
	}
	return []error{ErrNotAcquired, e.Err}
}

// TooLongError is returned when the server refuses a lease, TTL + Transition, that its store does
// not vouch for. The engine zookeeper vouches for half of its session timeout.
type TooLongError struct {
	Longest time.Duration // the longest lease that the server grants at present
	err     error
}

// Error implements error.
func (e *TooLongError) Error() string { return e.err.Error() }

// Unwrap returns the server's error reply.
func (e *TooLongError) Unwrap() error { return e.err }

// unavailableError matches ErrUnavailable and has a cause.
type unavailableError struct{ cause error }

func (e *unavailableError) Error() string        { return ErrUnavailable.Error() + ": " + e.cause.Error() }
func (e *unavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap does not return a context error: the deadline of a request is not the caller's deadline.
func (e *unavailableError) Unwrap() error {
	if isContextError(e.cause) {
		return nil
	}
	return e.cause
}

func isContextError(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// errNoAnswer is the error of a request that took longer than Options.Timeout.
var errNoAnswer error = &unavailableError{errors.New("no reply in time")}

// requestError translates an error of go-redis for the caller: to ErrClosed, or to ErrUnavailable
// with a cause. It does not change an error reply by which the server refuses the request.
func requestError(err error) error {
	if err == nil {
		return nil
	}
	var unavailable *unavailableError
	var longest int64
	if redis.HasErrorPrefix(err, "TOOLONG ") {
		if _, failure := fmt.Sscanf(err.Error(), "TOOLONG %d ms", &longest); failure == nil {
			return &TooLongError{time.Duration(longest) * time.Millisecond, err}
		}
	}
	switch {
	case redis.HasErrorPrefix(err, "unknown command"):
		return fmt.Errorf("not a simba-resp server? %w", err)
	case errors.Is(err, redis.Nil), refused(err), errors.As(err, &unavailable):
		return err
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("the go-redis client is %w", ErrClosed)
	case isContextError(err), errors.Is(err, os.ErrDeadlineExceeded):
		return errNoAnswer
	}
	return &unavailableError{err}
}

// isFinal reports whether it is useless to retry after err.
func isFinal(err error) bool { return errors.Is(err, ErrClosed) || refused(err) }
