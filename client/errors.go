package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Errors that errors.Is matches.
var (
	// ErrLost is the cause of an ownership context that ended without being asked to, and what
	// Unlock, Do and Stop return then: the lease was not renewed in time, or was broken. Another
	// may own the mutex.
	ErrLost = errors.New("the mutex was lost")
	// ErrReleased is the cause of an ownership context that ended because the mutex is released.
	ErrReleased = errors.New("the mutex was released")
	// ErrNotAcquired is what a [NotAcquiredError] matches.
	ErrNotAcquired = errors.New("the mutex is not acquired")
	// ErrUnavailable means that the server could not be asked, did not answer in time, or cannot
	// reach its store. Asking again may help. It does not match context.DeadlineExceeded.
	ErrUnavailable = errors.New("the server cannot be asked")
	// ErrInUse is returned by Start and Run of what runs already, and for an id that another
	// contender of the same mutex has in the same Client.
	ErrInUse = errors.New("it is in use")
	// ErrClosed means that the Client, the Registry or the go-redis client is closed.
	ErrClosed = errors.New("closed")
)

// NotAcquiredError says that a mutex was not acquired: another owned it, or the context ended while
// this one waited. It matches ErrNotAcquired, and what Err matches.
type NotAcquiredError struct {
	Mutex string
	// Owner is who owned the mutex when the server was last heard of. The zero Owner: nobody, since
	// another waiter is next, or it is not known.
	Owner Owner
	// Err is why the wait ended: the error of the context, and of the last request if it failed.
	// nil = there was no wait.
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

// Unwrap hides the deadline of a request: it is not one of the caller's.
func (e *unavailableError) Unwrap() error {
	if isContextError(e.cause) {
		return nil
	}
	return e.cause
}

func isContextError(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// errUnanswered is that of a request that took longer than it may.
var errUnanswered error = &unavailableError{errors.New("no answer in time")}

// judged is the error of a request as the caller sees it: ErrClosed, ErrUnavailable with its cause,
// or what the server says if that is final.
func judged(err error) error {
	var unavailable *unavailableError
	switch {
	case err != nil && redis.HasErrorPrefix(err, "ERR unknown command"):
		return fmt.Errorf("is it a simba-resp server? %w", err)
	case err == nil, errors.Is(err, redis.Nil), refused(err), errors.As(err, &unavailable):
		return err
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("the go-redis client is %w", ErrClosed)
	case isContextError(err):
		return errUnanswered
	}
	return &unavailableError{err}
}
