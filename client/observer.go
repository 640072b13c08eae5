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

	// OnChange is called once after each start, even if the mutex is free or the owner is the same
	// as before. Then it is called once for each change of the owner or the token. It must not be
	// nil.
	//
	// Calls come in order and one at a time. State.Before is the After of the previous call; in the
	// first call it is the zero Owner. TTLAt and TransitionAt of After are zero if the Observer
	// does not know them. Then the tenure had ended already, the server did not reply, or the next
	// notice was already waiting.
	//
	// At most 1,024 notices wait for OnChange. The Observer drops further notices. It then queries
	// the owner, and reports the missed changes as one.
	OnChange func(State)
}

// Observer observes the owner of a mutex and does not contend for it, like the retrieval service of
// Simba. A new Observer is stopped, and a stopped one may be started again. It is safe for
// concurrent use.
//
// The server sends the Observer a notice of each change. As long as no notice is lost, the
// Observer reports every change, even if notices come late. After a lost connection it subscribes
// again, queries the owner, and reports the missed changes as one. While the server cannot be
// reached, it reports nothing.
//
// To find out that a notice was lost, the Observer also queries the owner at the end of each lease,
// and every 15 s. If a reply shows a change and no notice follows, it reports the change 6 s later.
type Observer struct {
	c   *Client
	cfg ObserverConfig

	mu    sync.Mutex   // guards what follows
	run   *observerRun // the last run; nil = never started
	owner Owner        // the owner in the last call of OnChange, with its newest windows
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

// Run starts the Observer, waits until ctx ends or another goroutine calls Stop or Quit, and stops
// the Observer. Run returns nil when the last call of OnChange has returned. It returns ErrClosed
// when the Client or the go-redis client is closed. The Observer repeats queries that fail.
//
// If the Observer runs already, Run returns ErrInUse, see [Observer.Start].
func (o *Observer) Run(ctx context.Context) error {
	r, err := o.start()
	if err != nil {
		return err
	}
	return r.waitDone(ctx, o.c, o.name())
}

// Start starts the Observer and does not wait for the server. Most programs use [Observer.Run]
// instead.
//
// Start returns ErrInUse if the Observer runs already, or if a call of OnChange of its last run has
// not returned yet. It returns ErrClosed if the Client is closed.
func (o *Observer) Start() error {
	_, err := o.start()
	return err
}

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
		defer func() { // deferred, because OnChange may end the goroutine (runtime.Goexit)
			o.c.active.remove(a, nil)
			close(r.gone)
			r.finish(r.closed)
		}()
		r.loop()
	}()
	return r, nil
}

func (o *Observer) name() string { return "the observer of " + o.cfg.Mutex }

// Stop stops the Observer. It waits for a call of OnChange that is in progress; no call follows
// until the next start. Stop returns at once if the Observer is stopped or was never started. It
// returns ErrClosed if the last run has ended because the go-redis client is closed.
//
// If ctx ends first, Stop returns an error that matches ctx.Err(), and the Observer continues to
// stop in the background.
//
// OnChange must not call Stop, which would wait for OnChange to return: call [Observer.Quit], or
// Stop with a context that has ended.
func (o *Observer) Stop(ctx context.Context) error { return o.lastRun().end(ctx, "stop "+o.name()) }

// Quit stops the Observer in the background. OnChange may call it. A call of OnChange may still be
// in progress when Quit returns. Quit does nothing if the Observer is stopped or was never started.
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
// Owner means that the mutex is free, or that the Observer has not reported yet. After Stop, or
// while the server cannot be reached, the result may be out of date. So check that TransitionAt has
// not passed.
func (o *Observer) Owner() Owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.owner
}

// set stores the owner of the mutex. It calls OnChange if the owner has changed or if first is
// true. It does nothing after r was stopped.
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
