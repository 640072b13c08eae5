// Package contend gives packages worker and registry a contender that reports each of its steps. An
// exported method of client.Client for this purpose would show internals to every user.
//
// Package client sets the variables of this package in its init function. Since client imports
// contend, contend cannot import client. So a *client.Client or *client.Contender is passed as any.
package contend

import (
	"context"
	"log/slog"
	"time"
)

// Hooks are functions that the goroutine of a contender calls, one at a time. They must not block,
// and may be nil.
type Hooks struct {
	Asking    func(renewal bool)              // a request is about to be sent
	Acquired  func(ownership context.Context) // a tenure has begun
	Renewed   func()                          // a new lease has begun
	Lost      func()                          // the tenure and its context have ended
	Waiting   func()                          // another contender owns the mutex or is next
	Releasing func()                          // a release is about to be sent
	Ended     func()                          // the contender has stopped; Stop returns after Ended

	// Failed is called when a request has failed. If final is true, it is useless to retry. owner
	// says whether the contender owns the mutex.
	Failed func(err error, final, owner bool)
}

// Config configures one run of a contender.
type Config struct {
	Mutex, ID  string
	TTL        time.Duration // the whole lease; only Run.Renew renews it
	DefaultTTL bool          // the lease may be shorter if the server demands it
	Once       bool          // end the run when the mutex is not acquired at once, or is lost
	NoQueue    bool          // take no queue entry
	Every      time.Duration // not 0: a waiter gets no notices, and asks again after this pause
	Hooks      Hooks
}

// Run is one run of a contender.
type Run interface {
	// Stop begins to stop and does not wait. It may be called repeatedly.
	Stop()
	// Renew makes the owner send a renewal at once.
	Renew()
	// Stopping is closed when Stop is called, when the Client is closed, and when the run ends.
	Stopping() <-chan struct{}
	// Done is closed when the mutex is released, or when the release takes longer than Timeout.
	Done() <-chan struct{}
	// Gone is closed when no request of the run is in progress any more, not even the release.
	Gone() <-chan struct{}
	// Err returns the error of the release. Call it when Done is closed.
	Err() error
}

var (
	// Start starts a run of a contender of a *client.Client.
	Start func(client any, cfg Config) (Run, error)
	// Timeout returns the Timeout of a *client.Client.
	Timeout func(client any) time.Duration
	// ErrNoAnswer means that a request took longer than Timeout. It matches client.ErrUnavailable.
	ErrNoAnswer error
	// ErrClientClosed matches client.ErrClosed.
	ErrClientClosed error

	// Trace sets the hooks of a *client.Contender that was never started.
	Trace func(contender any, h Hooks)
	// Stopping reports whether a *client.Contender is stopping, or is stopped.
	Stopping func(contender any) bool
	// ResignForTTL makes a *client.Contender resign and contend again after its TTL.
	ResignForTTL func(contender any)
	// BeginWork notes the start time of work of a *client.Contender. done calls the hook WorkDone
	// of the Client with the error of the work.
	BeginWork func(contender any, ownership context.Context) (done func(error))
	// Logger returns a logger that adds the mutex and the id of a *client.Contender to each line.
	Logger func(contender any) *slog.Logger
)
