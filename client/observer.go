package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/simba-resp/simba-resp/client/internal/names"
)

// ObserverConfig configures an Observer.
type ObserverConfig struct {
	Mutex string // 1 to 255 bytes, see SIMBA.ACQUIRE

	// OnChange is called with the first owner after each start, also when the mutex is free or
	// the owner is the same as before. From then on it is called once for each change of the
	// owner or the token. It must not be nil.
	//
	// Calls come in order and one at a time, and the next waits until OnChange has returned.
	// Before is the After of the call before, and zero in the first call ever. TTLAt and
	// TransitionAt of After are zero if the Observer could not query them: the tenure ended
	// before, or the server did not reply.
	//
	// If more than 1,024 notices wait for OnChange, the Observer drops those beyond. It then
	// queries the owner, and reports that as one change.
	OnChange func(State)
}

// Observer observes the owner of a mutex and does not contend for it: Simba's retrieval service.
// It begins stopped, and may be started again after each stop. It is safe for concurrent use.
//
// The server sends it a notice of each change. As long as the connection holds, OnChange is
// called for every change after the first call, however late the notices are. After a lost
// connection the Observer subscribes again and asks who owns the mutex: of several changes in
// between it reports the last. While the server cannot be reached it reports nothing.
//
// In case a notice is lost, the Observer also queries the owner at the end of each lease, and
// every 15 s. If a reply shows a change without a notice, it reports the change 6 s later.
type Observer struct {
	c   *Client
	cfg ObserverConfig

	mu    sync.Mutex   // guards what follows
	run   *observerRun // the last; nil = never started
	owner Owner        // After of the last call of OnChange, with the newest windows
}

// NewObserver returns a stopped Observer. The error names the field of cfg that is not valid.
func (c *Client) NewObserver(cfg ObserverConfig) (*Observer, error) {
	if err := names.CheckMutex(cfg.Mutex); err != nil {
		return nil, err
	}
	if cfg.OnChange == nil {
		return nil, errors.New("OnChange is nil")
	}
	return &Observer{c: c, cfg: cfg}, nil
}

// Run starts the Observer, waits until ctx ends, and stops it. It returns when the last call of
// OnChange has returned, so it suits an errgroup. It also ends by Stop or Quit. In all these
// cases it returns nil: the Observer retries what fails. It ends with ErrClosed when the Client
// or the go-redis client is closed.
//
// Run returns ErrInUse at once if the Observer runs already, or if a call of OnChange of
// its last run has not returned yet.
func (o *Observer) Run(ctx context.Context) error {
	r, err := o.start()
	if err != nil {
		return err
	}
	return r.waitDone(ctx, o.c, o.name())
}

// Start starts the Observer and does not wait for the server. It retries what fails. Most
// programs use [Observer.Run] instead.
//
// Start returns ErrInUse if the Observer runs already, or if a call of OnChange of its last run
// has not returned yet. It returns ErrClosed if the Client is closed.
func (o *Observer) Start() error {
	_, err := o.start()
	return err
}

// start begins a run. Run and Start return its error.
func (o *Observer) start() (*observerRun, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.run != nil && !o.run.over() {
		return nil, fmt.Errorf("start %s: %w", o.name(), ErrInUse)
	}
	r := newObserverRun(o)
	a := &active{stop: r.stop}
	if err := o.c.active.add(a); err != nil {
		return nil, fmt.Errorf("start %s: %w", o.name(), err)
	}
	o.run = r
	go func() {
		defer func() { // also if OnChange ends the goroutine
			o.c.active.remove(a, nil)
			close(r.gone)
			r.finish(r.closed)
		}()
		r.loop()
	}()
	return r, nil
}

// name names the Observer in errors.
func (o *Observer) name() string { return "the observer of " + o.cfg.Mutex }

// Stop stops the Observer and waits until a call of OnChange that is in progress has returned.
// OnChange is not called after that, until the next start. Stop returns nil at once if the
// Observer is stopped or was never started.
//
// If ctx ends first, Stop returns an error that matches ctx.Err(). The Observer stops all the
// same.
//
// OnChange cannot wait for its own return: in OnChange call [Observer.Quit], or Stop with a
// context that has ended.
func (o *Observer) Stop(ctx context.Context) error { return o.lastRun().end(ctx, "stop "+o.name()) }

// Quit begins to stop and does not wait for it: unlike Stop it may be called in a callback. A
// call of OnChange may still be in progress when Quit returns. Quit does nothing if the Observer
// is stopped or was never started.
func (o *Observer) Quit() {
	if r := o.lastRun(); r != nil {
		r.stop()
	}
}

// lastRun returns the last run; nil if the Observer was never started.
func (o *Observer) lastRun() *run {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.run == nil {
		return nil
	}
	return o.run.run
}

// Owner returns the owner that the Observer has reported last, with its newest windows. The zero
// Owner means that the mutex is free, or that the Observer has not reported yet. While the server
// cannot be reached, and after Stop, the owner stays the same: compare its windows with the time.
func (o *Observer) Owner() Owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.owner
}

// set stores the owner of the mutex, and calls OnChange if the owner has changed or if this is
// the first report of r. It does nothing after r was stopped.
func (o *Observer) set(r *observerRun, owner Owner, first bool) {
	o.mu.Lock()
	if r.ctx.Err() != nil {
		o.mu.Unlock()
		return
	}
	before := o.owner
	o.owner = owner
	o.mu.Unlock()
	if first || !sameTenure(before, owner) {
		o.cfg.OnChange(State{o.cfg.Mutex, before, owner})
	}
}
