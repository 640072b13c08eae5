// Package contend gives the subpackages of client what package client does not export: a
// contender that reports each of its steps. Package client sets the variables when it is
// initialized. Their first argument is a *client.Client or a *client.Contender: this package
// cannot import client, which imports it.
//
// The run itself could live here, but the variables would remain. A subpackage gets a
// *client.Client from its user, and only package client can look into it. An exported method, or
// an alias of a type of this package, would show internals to every user of package client.
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
	Renewed   func()                             // its lease has begun anew
	Lost      func()                             // its context has ended
	Waiting   func()                             // another contender owns the mutex or is next
	Failed    func(err error, final, owner bool) // a request failed, or was refused (final)
	Releasing func()                             // a release is about to be sent
	Ended     func()                             // it has stopped; Stop returns after this
}

// Config configures one run of a contender.
type Config struct {
	Mutex, ID string
	TTL       time.Duration // the whole lease; only Run.Renew renews it
	Once      bool          // end when another contender owns the mutex, or when the tenure is lost
	NoQueue   bool          // take no queue entry
	Every     time.Duration // not 0: the pause between requests of a waiter; no notice shortens it
	Hooks     Hooks
}

// Run is one run of a contender.
type Run interface {
	// Stop begins to stop. It may be called often.
	Stop()
	// Renew sends a request at once.
	Renew()
	// Stopping is closed by Stop, and when the Client is closed.
	Stopping() <-chan struct{}
	// Done is closed when the mutex is released, or when that takes longer than Timeout.
	Done() <-chan struct{}
	// Gone is closed when nothing of the run is left.
	Gone() <-chan struct{}
	// Err returns why something is left at the server. It may be called when Done is closed.
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
	// Stopping reports whether a *client.Contender stops, or has stopped.
	Stopping func(contender any) bool
	// ResignForTTL makes a *client.Contender resign and contend again after its TTL.
	ResignForTTL func(contender any)
	// BeginWork begins to measure work of a *client.Contender. done calls the hook WorkDone.
	BeginWork func(contender any, ownership context.Context) (done func(error))
	// Logger returns the logger of a *client.Contender, which adds the mutex and the contender's
	// id.
	Logger func(contender any) *slog.Logger
)
