package client

import (
	"context"
	"errors"
	"time"
)

// Hooks are functions that a Client calls when something happens to its contenders: for metrics,
// traces and tests. Those that are nil are not called. They report everything that contends by the
// Client: Do, Lock, Contender, Scheduler, and the types of the packages worker and registry.
//
// An attempt to acquire a mutex begins with its first request. It ends with Acquired or
// NotAcquired, once. Before that comes Contended, at most once, if the mutex is not free. A tenure
// begins with Acquired and ends with Released or Lost, once.
//
// Hooks of several contenders are called at the same time. Those of one contender are called one at
// a time and in order, except WorkDone, which may overlap with another. Acquired is called before
// Do runs its work, and before Lock returns. Released is called before Do and Unlock return if the
// server has replied by then.
//
// A hook must not block: its contender does not renew the lease meanwhile. It must not wait for
// anything of the Client. The Client does not recover a panic of a hook, which ends the process.
//
// The context of a hook has the values of the context of Do, Lock or Run, such as the span of a
// trace. It does not end.
type Hooks struct {
	// Contended is called when an attempt finds that another contender owns the mutex or is next.
	Contended func(context.Context, HookEvent)

	// Acquired is called when a tenure begins. Took is the time from the first request.
	Acquired func(context.Context, HookEvent)

	// NotAcquired is called when an attempt ends without a tenure. The mutex of a TryLock is not
	// free, the context of Lock has ended, the contender is stopped, or the server refuses it. Took
	// is the time from the first request. Err is the error of the last request, nil if the server
	// has replied. If the context of Lock has ended, the call may come after Lock has returned.
	NotAcquired func(context.Context, HookEvent)

	// Released is called when a tenure has ended because its owner gives it up, and the server has
	// replied to the release. Took is the length of the tenure. If the server has not confirmed the
	// release, Err says why, and the call may come when the lease has ended.
	Released func(context.Context, HookEvent)

	// Lost is called when a tenure has ended because its lease has expired or was broken. Took is
	// the length of the tenure, and Err matches ErrLost.
	Lost func(context.Context, HookEvent)

	// WorkDone is called when the work of Do, TryDo or a Scheduler has returned, and when StopWork
	// of a worker has returned. Took is the time since the work was started, and Err its error. If
	// the work has panicked or ended its goroutine, Err says so.
	WorkDone func(context.Context, HookEvent)
}

// HookEvent is what a hook reports.
type HookEvent struct {
	Mutex string
	ID    string // the contender's id
	Token uint64 // the fencing token of the tenure; 0 = Contended, NotAcquired

	// Took is how long the attempt, the tenure or the work lasted that has ended. Contended has 0.
	Took time.Duration

	// Owner is the owner in the server's last reply, for Contended, NotAcquired and Lost. The zero
	// Owner means that the mutex is free, that another waiter is next, or that it is not known.
	Owner Owner

	// Expired is true for Lost if the lease has ended by the clock of this process. False means
	// that the server has replied that the tenure is over, as after SIMBA.BREAK.
	Expired bool

	Err error // see each hook
}

// errWorkEnded is the Err of WorkDone if the work has not returned.
var errWorkEnded = errors.New("the work panicked or ended its goroutine")

// beginWork begins to measure work. done calls WorkDone with the error of the work.
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
