package client

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

const (
	// lookEvery is how often an observer looks at the least.
	lookEvery = 15 * time.Second
	// lookPause is between two looks at the least: a lease that is about to end may be renewed.
	lookPause = 10 * time.Millisecond
	// lookRetryMax is the longest pause after a look that failed.
	lookRetryMax = 2 * time.Second
	// lookMendMax is the longest instead while the server refuses.
	lookMendMax = 20 * time.Second
	// maxTidings is how many changes may wait to be told; if there are more, it looks instead.
	maxTidings = 1024
)

// tiding is what the server says on a mutex' event channel. Seq, time and reason are
// of no use here.
type tiding struct {
	Event string `json:"event"`
	Owner string `json:"owner"`
	Token uint64 `json:"token"`
}

// watch is one run of an Observer. Its goroutine alone changes what the Observer knows: it takes
// the changes that were heard one by one, and looks at the server when there
// are none and it is time to.
type watch struct {
	o      *Observer
	ctx    context.Context // of the run: it ends with Stop
	cancel context.CancelFunc
	done   chan struct{} // closed when run returns
	wake   chan struct{} // there is something new below

	mu      sync.Mutex // guards what follows
	tidings []tiding   // not told yet, from old to new
	fresh   bool       // the channel is heard from now on; what was said before may be missed
	astray  bool       // something was said that is not known

	// Used by run only.
	newest uint64        // the largest token heard of: what is said of it again is old
	pause  time.Duration // after the next look that fails
	denied bool          // the last look was refused
}

func newWatch(o *Observer) *watch {
	ctx, cancel := context.WithCancel(context.Background())
	return &watch{
		o: o, ctx: ctx, cancel: cancel, done: make(chan struct{}), wake: make(chan struct{}, 1),
		newest: o.owner.Token, pause: retryPause,
	}
}

func (w *watch) run() {
	defer close(w.done)
	ear := w.o.c.radio.listen(w.heard, simba.EventChannel(w.o.cfg.Mutex))
	defer w.o.c.radio.leave(ear)
	due := time.NewTimer(0)
	defer due.Stop()
	for w.ctx.Err() == nil {
		if t, ok := w.next(); ok {
			if d, look := w.follow(t); look {
				due.Reset(d)
			}
			continue
		}
		select {
		case <-due.C:
		case <-w.wake:
			if !w.missed() {
				continue
			}
		case <-w.ctx.Done():
			return
		}
		due.Reset(w.look())
	}
}

// heard is called by the radio.
func (w *watch) heard(n notice) {
	var t tiding
	known := !n.fresh && json.Unmarshal([]byte(n.payload), &t) == nil
	if known && (t.Event == simba.EventQueued.String() || t.Event == simba.EventLeft.String()) {
		return
	}
	w.mu.Lock()
	switch {
	case n.fresh:
		w.fresh = true
	case !known || len(w.tidings) == maxTidings:
		w.astray = true
	default:
		w.tidings = append(w.tidings, t)
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// next takes what was heard first and is not told yet.
func (w *watch) next() (t tiding, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.tidings) == 0 {
		return tiding{}, false
	}
	t = w.tidings[0]
	w.tidings = w.tidings[1:]
	return t, true
}

// missed reports whether something may have happened that was not heard.
func (w *watch) missed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fresh || w.astray
}

// follow tells what was heard. look means to look in that time, at the latest.
func (w *watch) follow(t tiding) (d time.Duration, look bool) {
	switch t.Event {
	case simba.EventAcquired.String():
		if t.Token <= w.newest {
			return 0, false // seen already
		}
		w.newest = t.Token
		owner, err := w.ask()
		if err == nil && owner.ID == t.Owner && owner.Token == t.Token {
			w.o.set(w, owner)
			return w.again(owner), true
		}
		w.o.set(w, Owner{ID: t.Owner, Token: t.Token}) // it is over already, or nobody answers
		return 0, true
	case simba.EventReleased.String(), simba.EventExpired.String(), simba.EventBroken.String():
		if now := w.o.Owner(); !now.IsZero() && now.Token == t.Token {
			w.o.set(w, Owner{})
		}
		return 0, false
	}
	return 0, true
}

// look sees who owns the mutex, and returns when to look again.
func (w *watch) look() time.Duration {
	w.mu.Lock()
	fresh, astray := w.fresh, w.astray
	w.fresh, w.astray = false, false
	w.mu.Unlock()
	owner, err := w.ask()
	w.mu.Lock()
	overtaken := len(w.tidings) != 0 || w.fresh
	if err != nil || overtaken {
		w.fresh, w.astray = w.fresh || fresh, w.astray || astray
	}
	w.mu.Unlock()
	switch {
	case err != nil:
		d, longest := w.pause, lookRetryMax
		if refused(err) {
			longest = lookMendMax
		}
		w.pause = min(2*d, longest)
		return d/2 + rand.N(d)
	case overtaken: // what was said meanwhile is told first: the answer may be older
		return 0
	}
	w.pause = retryPause
	if fresh || !owner.IsZero() { // it may be another server, which counts anew
		w.newest = owner.Token
	}
	w.o.set(w, owner)
	return w.again(owner)
}

// again is in how long to look again at the latest.
func (w *watch) again(owner Owner) time.Duration {
	if owner.IsZero() {
		return lookEvery
	}
	return min(max(time.Until(owner.TransitionAt), lookPause), lookEvery)
}

func (w *watch) ask() (Owner, error) {
	ctx, cancel := context.WithTimeout(w.ctx, w.o.c.timeout)
	defer cancel()
	owner, err := w.o.c.owner(ctx, w.o.cfg.Mutex)
	switch {
	case err == nil && w.denied:
		w.denied = false
		w.o.c.log.Info("the server answers an observer again", "mutex", w.o.cfg.Mutex)
	case err == nil || w.ctx.Err() != nil:
	case refused(err) && !w.denied:
		w.denied = true
		w.o.c.log.Error("the server refuses an observer", "mutex", w.o.cfg.Mutex, "err", err)
	default:
		w.o.c.log.Debug("an observer could not look", "mutex", w.o.cfg.Mutex, "err", err)
	}
	return owner, err
}
