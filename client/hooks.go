package client

import (
	"context"
	"errors"
	"time"
)

// Hooks are functions that a Client calls when something happens to one of its contenders. They
// serve metrics, traces and tests. A hook may be nil. The contenders are those of Do, Lock,
// Contender, Scheduler, and of the packages worker and registry.
//
// An attempt to acquire a mutex begins with its first request. If another contender owns the mutex
// or is next, the Client calls Contended once. The attempt ends with one call of Acquired or
// NotAcquired. A tenure begins with Acquired and ends with one call of Released or Lost.
//
// The Client may call hooks of different contenders at the same time. It calls the hooks of one
// contender one at a time and in order, but WorkDone may overlap with another hook. It calls
// Acquired before Do runs its work, and before Lock returns. If the server replies to the release
// in time, the Client calls Released before Do and Unlock return.
//
// A hook must not block, because its contender cannot renew the lease until the hook returns. A
// hook must not wait until a method of the Client returns. A hook that panics ends the process.
//
// The context of a hook does not end. It has the values of the caller's context in Do, Lock or Run,
// such as the span of a trace.
type Hooks struct {
	// Contended is called when an attempt finds that another contender owns the mutex or is next.
	Contended func(context.Context, HookEvent)

	// Acquired is called when a tenure begins. Took is the time from the first request.
	Acquired func(context.Context, HookEvent)

	// NotAcquired is called when an attempt ends without a tenure. Reasons: TryLock did not get the
	// mutex, the context of Lock ended, the contender stopped, or the server refused the request.
	// Took is the time from the first request. Err is the error of the last request; nil means that
	// it did not fail. If the context of Lock has ended, the call may come after Lock has returned.
	NotAcquired func(context.Context, HookEvent)

	// Released is called when the server has confirmed the release of the mutex. Took is the length
	// of the tenure. If the release fails, Released is called at the latest when the lease ends.
	// Err is then the error of the release.
	Released func(context.Context, HookEvent)

	// Lost is called when a tenure has ended because its lease expired or was ended by SIMBA.BREAK.
	// Took is the length of the tenure, and Err matches ErrLost.
	Lost func(context.Context, HookEvent)

	// WorkDone is called when the work of Do, TryDo or a Scheduler has ended, and when StopWork of
	// a worker has returned. Took is the time since the start of the work. Err is the error of the
	// work. If the work panicked or ended its goroutine, Err says so.
	WorkDone func(context.Context, HookEvent)
}

// HookEvent is what a hook reports.
type HookEvent struct {
	Mutex string
	ID    string // the contender's id
	Token uint64 // the fencing token of the tenure; 0 in Contended and NotAcquired

	// Took is the length of the attempt, tenure or work that has ended; 0 in Contended.
	Took time.Duration

	// Owner is set in Contended, NotAcquired and Lost. It is the owner in the server's last reply.
	// The zero Owner means that the mutex is free, that another waiter is next, or that the owner
	// is not known.
	Owner Owner

	// Expired is for the hook Lost. It is true if the lease ended by the clock of this process. It
	// is false if the server replied that the tenure is over, for example after SIMBA.BREAK.
	Expired bool

	Err error // nil if nothing failed; see NotAcquired, Released, Lost and WorkDone
}

// errWorkEnded is the Err of WorkDone if the work has not returned.
var errWorkEnded = errors.New("the work panicked or ended its goroutine")

// beginWork notes the start time of work. done calls the hook WorkDone with the error of the work.
func (c *Client) beginWork(t terms, ownership context.Context) (done func(error)) {
	began := now()
	return func(err error) {
		call(c.hooks.WorkDone, context.WithoutCancel(ownership), HookEvent{
			Mutex: t.mutex, ID: t.id, Token: Token(ownership), Took: now().since(began), Err: err,
		})
	}
}

func call(hook func(context.Context, HookEvent), ctx context.Context, e HookEvent) {
	if hook != nil {
		hook(ctx, e)
	}
}
