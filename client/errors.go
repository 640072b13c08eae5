package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Errors that errors.Is matches.
var (
	// ErrLost is the cause of an ownership context that ended because the lease was not renewed
	// in time or was broken. Unlock, Do and Stop return it then. Another contender may own the
	// mutex.
	ErrLost = errors.New("mutex lost")
	// ErrReleased is the cause of an ownership context that ended because the mutex is released.
	ErrReleased = errors.New("mutex released")
	// ErrNotAcquired is matched by a [NotAcquiredError].
	ErrNotAcquired = errors.New("mutex not acquired")
	// ErrUnavailable is returned when the server cannot be reached, does not reply in time, or
	// cannot reach its store. A later attempt may succeed. It does not match
	// context.DeadlineExceeded.
	ErrUnavailable = errors.New("server unavailable")
	// ErrInUse is returned by Start and Run of a contender or observer that runs already. It is
	// also returned for an id that another contender of the mutex has in the same Client.
	ErrInUse = errors.New("already in use")
	// ErrClosed is returned when the Client, the Registry or the go-redis client is closed.
	ErrClosed = errors.New("closed")
)

// NotAcquiredError is returned when another contender owned the mutex, or when the context ended
// while this one waited. It matches ErrNotAcquired, and what Err matches.
type NotAcquiredError struct {
	Mutex string
	// Owner is the owner in the last reply. The zero Owner means that another waiter is next, or
	// that the owner is not known.
	Owner Owner
	// Err is the reason why the wait ended: the error of the context, joined with that of the
	// last request if it failed. nil means that there was no wait.
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

// Unwrap implements what errors.Is and errors.As look for.
func (e *NotAcquiredError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrNotAcquired}
	}
	return []error{ErrNotAcquired, e.Err}
}

// unavailableError is ErrUnavailable with its cause.
type unavailableError struct{ cause error }

func (e *unavailableError) Error() string        { return ErrUnavailable.Error() + ": " + e.cause.Error() }
func (e *unavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap hides the deadline of a request: it is not a deadline of the caller.
func (e *unavailableError) Unwrap() error {
	if isContextError(e.cause) {
		return nil
	}
	return e.cause
}

func isContextError(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// errNoAnswer is returned for a request that took longer than Timeout.
var errNoAnswer error = &unavailableError{noReply{}}

// noReply implements net.Error.
type noReply struct{}

func (noReply) Error() string   { return "no reply in time" }
func (noReply) Timeout() bool   { return true }
func (noReply) Temporary() bool { return true }

// requestError returns the error of a request as the caller gets it: ErrClosed, ErrUnavailable
// with its cause, or a final error reply of the server.
func requestError(err error) error {
	var unavailable *unavailableError
	switch {
	case err != nil && redis.HasErrorPrefix(err, "ERR unknown command"):
		return fmt.Errorf("not a simba-resp server? %w", err)
	case err == nil, errors.Is(err, redis.Nil), refused(err), errors.As(err, &unavailable):
		return err
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("the go-redis client is %w", ErrClosed)
	case isContextError(err):
		return errNoAnswer
	}
	return &unavailableError{err}
}
