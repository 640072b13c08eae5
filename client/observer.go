package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/simba-resp/simba-resp"
)

// ObserverConfig says what an Observer sees and whom it tells.
type ObserverConfig struct {
	Mutex string // what it observes: 1 to 255 bytes, see SIMBA.ACQUIRE

	// OnChange is called when the mutex has another owner, or none, than before: once for each
	// change of the owner or the token, in order, one at a time. The next change waits until it
	// returns. The windows of an owner that was gone again before it could be looked at
	// are zero.
	OnChange func(State)
}

// Observer sees who owns a mutex and wants nothing (Simba's retrieval service). It begins stopped
// and may be started again after each stop.
//
// It hears each change from the server as it happens. What was said while the connection was
// broken it does not know: it looks who owns the mutex when it hears again, so of several
// changes in between it tells the last. It looks also when it starts, when the lease that
// it knows of is over, and every 15 s. As long as the server cannot be asked, nothing
// changes for it.
type Observer struct {
	c   *Client
	cfg ObserverConfig

	mu    sync.Mutex // guards what follows
	run   *watch     // the last; nil = never started
	owner Owner      // as OnChange was told
}

// NewObserver returns a stopped Observer. The error names the field that cannot be.
func (c *Client) NewObserver(cfg ObserverConfig) (*Observer, error) {
	if err := simba.CheckMutex(cfg.Mutex); err != nil {
		return nil, err
	}
	if cfg.OnChange == nil {
		return nil, errors.New("OnChange is nil")
	}
	return &Observer{c: c, cfg: cfg}, nil
}

// Start begins to observe. It does not wait for anything; what goes wrong is tried again. What has
// changed since the last Stop is told as one change. ErrInUse: it runs already, or a
// call of OnChange has not returned yet.
func (o *Observer) Start() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.run != nil {
		select {
		case <-o.run.done:
		default:
			return ErrInUse
		}
	}
	o.run = newWatch(o)
	go o.run.run() // Stop waits for it
	return nil
}

// Stop ends observing: OnChange is not called any more. It waits until the last call has
// returned, or ctx ends; the error is that of ctx then. An Observer that is stopped is stopped.
//
// Called from OnChange, it must not be waited for: cancel ctx before.
func (o *Observer) Stop(ctx context.Context) error {
	o.mu.Lock()
	w := o.run
	if w != nil {
		w.cancel()
	}
	o.mu.Unlock()
	if w == nil {
		return nil
	}
	select {
	case <-w.done:
		return nil
	default:
	}
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop the observer of %s: %w", o.cfg.Mutex, ctx.Err())
	}
}

// Owner returns who owned the mutex when the server was last heard of. The zero Owner means
// nobody, or that it is not known yet.
func (o *Observer) Owner() Owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.owner
}

// set notes who owns the mutex, and tells if that is a change. Nothing happens after w was stopped.
func (o *Observer) set(w *watch, owner Owner) {
	o.mu.Lock()
	if w.ctx.Err() != nil {
		o.mu.Unlock()
		return
	}
	before := o.owner
	o.owner = owner
	o.mu.Unlock()
	if before.ID != owner.ID || before.Token != owner.Token {
		o.cfg.OnChange(State{o.cfg.Mutex, before, owner})
	}
}
