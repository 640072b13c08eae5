package client

import (
	"context"
	"errors"
	"time"
)

// Event is something that has happened to a contender of a Client. It serves metrics, traces and
// tests, see [Options].
//
// An attempt to acquire a mutex begins with its first request. If another contender owns the mutex
// or is next, there is one event Contended. The attempt ends with one Acquired or NotAcquired. A
// tenure begins with Acquired and ends with one Released or Lost.
//
// Events of different contenders may come at the same time. Those of one contender come in order,
// except that WorkDone, Asked and Renewed may overlap with others. Acquired comes before the work
// begins, or Lock returns. If the server replies to the release in time, Released comes before Do
// and Unlock return.
type Event struct {
	// Kind is one of:
	//
	//	Asked        before each request to acquire (Token is 0), and before each renewal
	//	Contended    an attempt finds that another contender owns the mutex or is next
	//	Acquired     a tenure begins; Took is the time from the first request
	//	NotAcquired  an attempt ends without a tenure; Took is the time from the first request, and
	//	             Err is the error of the last request, nil if it did not fail
	//	Renewed      a lease is renewed
	//	Released     the server has confirmed the release; Took is the length of the tenure. If the
	//	             release fails, the event comes when no lease can last any more, and Err is the
	//	             error of the release
	//	Lost         the lease expired or was ended by SIMBA.BREAK; Took is the length of the tenure,
	//	             and Err matches ErrLost
	//	WorkDone     the work of Do, TryDo or Lead, or a run of Every, has ended; Took is its time, and
	//	             Err its error. If it panicked or ended its goroutine, Err says so
	Kind string

	Mutex string
	ID    string        // the contender's id
	Token uint64        // the fencing token of the tenure; 0 if there is none
	Took  time.Duration // the length of the attempt, tenure or work that has ended

	// Owner is set in Contended, NotAcquired and Lost. It is the owner in the server's last reply.
	// The zero Owner means that the mutex is free, that another waiter is next, or that the owner
	// is not known.
	Owner Owner

	// Expired is for Lost. It is true if the lease ended by the clock of this process. It is false
	// if the server replied that the tenure is over, for example after SIMBA.BREAK.
	Expired bool

	Err error // nil if nothing failed
}

// errWorkEnded is the Err of WorkDone if the work has not returned.
var errWorkEnded = errors.New("the work panicked or ended its goroutine")

// report calls the hook for a contender. ctx has the values of the caller's context.
func (c *Client) report(ctx context.Context, t *terms, e Event) {
	if c.hook != nil {
		e.Mutex, e.ID = t.mutex, t.id
		c.hook(context.WithoutCancel(ctx), e)
	}
}
