// Package contend gives packages worker and registry a contender that reports each of its steps.
// Package client does not export one. Package client sets the variables of this package when it is
// initialized. Package client imports this package, so this package cannot import client. So the
// first argument of each variable, a *client.Client or *client.Contender, has the type any.
//
// Packages worker and registry get a *client.Client from their users, and only package client can
// access its fields. An exported method of the Client would show internals to every user.
package contend

import (
	"context"
	"log/slog"
	"time"
)

// Hooks are called by the goroutine of a contender, one at a time, and must not block. Those that
// are nil are not called.
type Hooks struct {
	Asking    func(renewal bool)                 // a request is about to be sent
	Acquired  func(ownership context.Context)    // a tenure has begun
	Renewed   func()                             // a new lease has begun
	Lost      func()                             // the tenure and its context have ended
	Waiting   func()                             // another contender owns the mutex or is next
	Failed    func(err error, final, owner bool) // a request failed; final: a retry does not help
	Releasing func()                             // a release is about to be sent
	Ended     func()                             // the contender has stopped; then Stop returns
}

// Config configures one run of a contender.
type Config struct {
	Mutex, ID string
	TTL       time.Duration // the whole lease; only Run.Renew renews it
	Once      bool          // end the run when the mutex is not acquired at once, or is lost
	NoQueue   bool          // take no queue entry
	Every     time.Duration // not 0: the pause between requests of a waiter; no notice shortens it
	Hooks     Hooks
}

// Run is one run of a contender.
type Run interface {
	// Stop begins to stop and does not wait. It may be called repeatedly.
	Stop()
	// Renew sends a request at once.
	Renew()
	// Stopping is closed when Stop is called, when the Client is closed, and when the run ends.
	Stopping() <-chan struct{}
	// Done is closed when the mutex is released, or when that takes longer than Timeout.
	Done() <-chan struct{}
	// Gone is closed when nothing of the run is left.
	Gone() <-chan struct{}
	// Err returns why the release has failed. It may be called when Done is closed.
	Err() error
}

var (
	// Start starts one run of a contender of a *client.Client.
	Start func(client any, cfg Config) (Run, error)
	// Timeout returns the Timeout of a *client.Client.
	Timeout func(client any) time.Duration
	// ErrNoAnswer matches client.ErrUnavailable: a request took longer than Timeout.
	ErrNoAnswer error
	// ErrClientClosed matches client.ErrClosed.
	ErrClientClosed error

	// Trace sets the hooks of a *client.Contender that was never started.
	Trace func(contender any, h Hooks)
	// Stopping reports whether a *client.Contender is stopping, or is stopped.
	Stopping func(contender any) bool
	// ResignForTTL makes a *client.Contender resign and contend again after its TTL.
	ResignForTTL func(contender any)
	// BeginWork notes the time at which work of a *client.Contender starts. done calls the hook
	// WorkDone with the error of the work.
	BeginWork func(contender any, ownership context.Context) (done func(error))
	// Logger returns the logger of a *client.Contender. It adds the mutex and the contender's id to
	// each line.
	Logger func(contender any) *slog.Logger
)
