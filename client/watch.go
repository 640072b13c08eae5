package client

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// lookEvery is the longest time between two looks at the owner.
	lookEvery = 15 * time.Second
	// lookPause is the shortest time to the look at the end of a lease: the owner may renew late.
	lookPause = 10 * time.Millisecond
	// lookRetryMax is the longest pause after a look that failed.
	lookRetryMax = 2 * time.Second
	// lookMendMax is the longest pause instead while the server refuses.
	lookMendMax = 20 * time.Second
	// A reply may be ahead of its notices for aheadLooks looks, with aheadPause before each. In all
	// that is 2 x pingEvery, in which the subscriber's connection delivers something or is
	// replaced. One long pause would not do: a process that was frozen for as long has not read its
	// notices.
	aheadPause = 2 * pingEvery / aheadLooks
	aheadLooks = 3
	// maxEvents is how many events may wait for OnChange. Those beyond are left out.
	maxEvents = 1024
)

// ownerEvent is a notice of the mutex' event channel. Its other fields are not needed here.
type ownerEvent struct {
	Kind  string `json:"event"`
	Owner string `json:"owner"`
	Token uint64 `json:"token"`

	gap bool // no notice: notices between the event before and the next may be missed
}

// watch is one run of an Observer. Only its goroutine changes what the Observer knows.
//
// As long as it hears the channel without a gap, notices alone change the owner. A reply of
// SIMBA.OWNER may be ahead of notices that are still under way, so it only brings the windows of
// the owner that is known already. A reply changes the owner
//
//   - in a gap: at the start, and when notices may be missed;
//   - if the notice of the owner that it shows is lost: one of a later owner comes, or aheadLooks
//     more looks pass without it.
type watch struct {
	*run
	o    *Observer
	ctx  context.Context // ends with stop
	wake chan struct{}   // an event was added

	mu     sync.Mutex // guards what follows
	events []ownerEvent

	// Used by observe only.
	closed     error         // why it cannot ask any more; nil = it can
	reported   bool          // OnChange was called in this run
	subscribed bool          // the channel is or was heard
	gap        bool          // the next reply changes the owner
	newest     uint64        // the largest token known: an earlier one is old
	ahead      *Owner        // what a look has shown and no notice has led to; nil = nothing
	aheadAt    time.Time     // when the look before was counted
	looks      int           // looks since ahead
	pause      time.Duration // after the next look that fails
	denied     bool          // the server refused the last look
}

func newWatch(o *Observer) *watch {
	w := &watch{
		run: newRun(), o: o, wake: make(chan struct{}, 1),
		gap: true, newest: o.owner.Token, pause: retryPause,
	}
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithCancel(context.Background())
	quit := w.stop
	w.stop = func() {
		cancel()
		quit()
	}
	return w
}

// observe first subscribes and then looks, so that no change after the first report is missed. If
// the subscription takes longer than a request may, it looks all the same.
func (w *watch) observe() {
	l := w.o.c.radio.listen(w.heard, eventChannel(w.o.cfg.Mutex))
	defer w.o.c.radio.leave(l)
	due := time.NewTimer(w.o.c.timeout)
	defer due.Stop()
	for w.ctx.Err() == nil {
		if e, ok := w.next(); ok {
			if d, look := w.follow(e); look {
				due.Reset(d)
			}
			continue
		}
		select {
		case <-w.wake:
		case <-due.C:
			due.Reset(w.look())
		case <-w.ctx.Done():
		}
	}
}

// heard is called by the subscriber's connection. What is not an event is added as the
// zero ownerEvent.
func (w *watch) heard(n notice) {
	e := ownerEvent{gap: n.fresh}
	if !n.fresh && json.Unmarshal([]byte(n.payload), &e) != nil {
		e = ownerEvent{}
	}
	if e.Kind == eventQueued || e.Kind == eventLeft {
		return
	}
	w.mu.Lock()
	switch {
	case len(w.events) < maxEvents:
		w.events = append(w.events, e)
	case !w.events[len(w.events)-1].gap:
		w.events = append(w.events, ownerEvent{gap: true})
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// next removes and returns the oldest event.
func (w *watch) next() (e ownerEvent, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) == 0 {
		return ownerEvent{}, false
	}
	e = w.events[0]
	w.events = w.events[1:]
	return e, true
}

// queued reports whether there are events to follow.
func (w *watch) queued() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.events) != 0
}

// follow reports what was heard. If look is true, d is the time until the next look.
func (w *watch) follow(e ownerEvent) (d time.Duration, look bool) {
	switch {
	case e.gap:
		w.gap, w.subscribed, w.ahead = true, true, nil
		return 0, true
	case e.Kind == eventAcquired && e.Token > w.newest:
		return w.acquired(Owner{ID: e.Owner, Token: e.Token}), true
	case e.Kind == eventReleased, e.Kind == eventExpired,
		e.Kind == eventBroken:
		if now := w.o.Owner(); !now.IsZero() && now.Token == e.Token {
			w.led(Owner{})
			return 0, false
		}
		return 0, e.Token > w.newest // the notice of its beginning is lost
	}
	return 0, true // an old token: the store may count anew; or a kind that is not known
}

// acquired reports a new owner, and returns when to look next. It first asks for the windows,
// unless the next event is here: then the owner is gone.
func (w *watch) acquired(owner Owner) time.Duration {
	if w.ahead != nil && w.newest < w.ahead.Token && w.ahead.Token < owner.Token {
		w.report(*w.ahead) // its own notice is lost, since this one comes behind it
	}
	w.newest, w.gap = owner.Token, false
	if w.queued() {
		w.led(owner)
		return 0
	}
	reply, err := w.ask()
	if err != nil {
		w.led(owner)
		return 0
	}
	if sameTenure(reply, owner) {
		owner = reply
	}
	w.led(owner)
	return w.compare(reply)
}

// led reports the owner that a notice has led to. If notices have come as far as w.ahead, no look
// needs to report it.
func (w *watch) led(owner Owner) {
	if w.ahead != nil && w.newest >= w.ahead.Token {
		w.ahead = nil
	}
	w.report(owner)
}

// look asks who owns the mutex, and returns when to look next.
func (w *watch) look() time.Duration {
	reply, err := w.ask()
	switch {
	case err != nil:
		d, longest := w.pause, lookRetryMax
		if refused(err) {
			longest = lookMendMax
		}
		w.pause = min(2*d, longest)
		return d/2 + rand.N(d)
	case w.queued(): // follow these first
		return 0
	}
	w.pause = retryPause
	if w.gap {
		w.gap = !w.subscribed  // without a subscription each look changes the owner
		w.newest = reply.Token // it may be another server, which counts anew
		w.report(reply)
	}
	return w.compare(reply)
}

// compare decides what a reply without a gap says about the owner that is known, and returns when
// to look next.
func (w *watch) compare(reply Owner) time.Duration {
	known := sameTenure(reply, w.o.Owner())
	if known {
		w.report(reply) // its windows
	}
	switch {
	case w.ahead != nil:
		return w.count(reply)
	case known:
		return again(reply)
	}
	w.ahead, w.aheadAt, w.looks = &reply, time.Now(), 0
	return aheadPause
}

// count counts a look after the one that has shown w.ahead. The last of them reports w.ahead, and
// not its reply: notices of what the reply shows may still be under way.
func (w *watch) count(reply Owner) time.Duration {
	if early := aheadPause - time.Since(w.aheadAt); early > 0 {
		return early
	}
	w.aheadAt = time.Now()
	if w.looks++; w.looks < aheadLooks {
		return aheadPause
	}
	owner := *w.ahead
	w.ahead = nil
	if !owner.IsZero() {
		w.newest = owner.Token
	}
	if sameTenure(owner, reply) {
		owner = reply // renewed since
	}
	w.report(owner)
	return 0
}

// report has OnChange called if owner is another than before, or is the first in this run.
func (w *watch) report(owner Owner) {
	first := !w.reported
	w.reported = true
	w.o.set(w, owner, first)
}

// again is when to look next at the latest.
func again(owner Owner) time.Duration {
	if owner.IsZero() {
		return lookEvery
	}
	return min(max(time.Until(owner.TransitionAt), lookPause), lookEvery)
}

func sameTenure(a, b Owner) bool { return a.ID == b.ID && a.Token == b.Token }

func (w *watch) ask() (Owner, error) {
	ctx, cancel := context.WithTimeout(w.ctx, w.o.c.timeout)
	defer cancel()
	owner, err := w.o.c.owner(ctx, w.o.cfg.Mutex)
	switch {
	case err == nil && w.denied:
		w.denied = false
		w.o.c.log.Info("the server answers an observer again", "mutex", w.o.cfg.Mutex)
	case err == nil || w.ctx.Err() != nil:
	case errors.Is(err, ErrClosed):
		w.closed = err
		w.stop()
		w.o.c.log.Error("an observer ends, for it cannot ask any more", "mutex", w.o.cfg.Mutex, "err", err)
	case refused(err) && !w.denied:
		w.denied = true
		w.o.c.log.Error("the server refuses an observer", "mutex", w.o.cfg.Mutex, "err", err)
	default:
		w.o.c.log.Debug("an observer could not look", "mutex", w.o.cfg.Mutex, "err", err)
	}
	return owner, err
}
