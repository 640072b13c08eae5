package client

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp/client/internal/names"
)

const (
	// queryEvery is the longest time between two queries of the owner.
	queryEvery = 15 * time.Second
	// queryPause is the shortest time to the query at the end of a lease: the owner may renew
	// late.
	queryPause = 10 * time.Millisecond
	// queryRetryMax is the longest pause after a query that failed, and queryRefusedMax while the
	// server refuses queries.
	queryRetryMax   = 2 * time.Second
	queryRefusedMax = 20 * time.Second
	// A reply may be ahead of its notices for aheadQueries queries, with aheadPause before each.
	// That is 2 x pingEvery in all, in which the subscriber's connection delivers something or is
	// replaced. One long pause would not do: a process that was frozen for as long has not read
	// its notices.
	aheadPause   = 2 * pingEvery / aheadQueries
	aheadQueries = 3
	// maxEvents is how many events may wait for OnChange. Those beyond are dropped.
	maxEvents = 1024
)

// ownerEvent is a notice of the mutex' event channel. Its other fields are not needed here.
type ownerEvent struct {
	Kind  string `json:"event"`
	Owner string `json:"owner"`
	Token uint64 `json:"token"`

	gap bool // no notice: notices between the event before and the next may be missed
}

// observerRun is one run of an Observer. Only its goroutine changes the owner that the Observer
// knows.
//
// As long as notices come without a gap, they alone change the owner. A reply to SIMBA.OWNER may
// be ahead of notices in flight, so it only adds the windows of the owner that is known already.
// A reply changes the owner
//
//   - in a gap: at the start, and when notices may be missed;
//   - if the notice of the owner in the reply is lost: the notice of a later owner comes, or
//     aheadQueries more queries pass without it.
type observerRun struct {
	*run
	o    *Observer
	ctx  context.Context // ends with stop
	wake chan struct{}   // an event was added

	mu     sync.Mutex // guards what follows
	events []ownerEvent

	// Used by the goroutine of the run only.
	closed     error         // why queries are impossible; nil = they are possible
	reported   bool          // OnChange was called in this run
	subscribed bool          // the channel was subscribed to in this run
	gap        bool          // the next reply changes the owner
	newest     uint64        // the largest token known; smaller ones are old
	ahead      *Owner        // the owner in a reply whose notice has not come; nil = none
	aheadAt    time.Time     // when the query before was counted
	queries    int           // queries since ahead was set
	pause      time.Duration // after the next query that fails
	refused    bool          // the server refused the last query
}

func newObserverRun(o *Observer) *observerRun {
	r := &observerRun{
		run: newRun(), o: o, wake: make(chan struct{}, 1),
		gap: true, newest: o.owner.Token, pause: retryPause,
	}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithCancel(context.Background())
	quit := r.stop
	r.stop = func() {
		cancel()
		quit()
	}
	return r
}

// loop is the goroutine of the run. It first subscribes and then queries, so that no change after
// the first report is missed. If the subscription takes longer than Timeout, it queries all the
// same.
func (r *observerRun) loop() {
	l := r.o.c.subscriptions.add(r.notified, names.EventChannel(r.o.cfg.Mutex))
	defer r.o.c.subscriptions.remove(l)
	due := time.NewTimer(r.o.c.timeout)
	defer due.Stop()
	for r.ctx.Err() == nil {
		if e, ok := r.nextEvent(); ok {
			if d, query := r.follow(e); query {
				due.Reset(d)
			}
			continue
		}
		select {
		case <-r.wake:
		case <-due.C:
			due.Reset(r.query())
		case <-r.ctx.Done():
		}
	}
}

// notified adds an event; it is called by the subscriber's connection. A notice that is not valid
// is added as the zero ownerEvent.
func (r *observerRun) notified(n notice) {
	e := ownerEvent{gap: n.subscribed}
	if !n.subscribed && json.Unmarshal([]byte(n.payload), &e) != nil {
		e = ownerEvent{}
	}
	if e.Kind == names.EventQueued || e.Kind == names.EventLeft {
		return
	}
	r.mu.Lock()
	switch {
	case len(r.events) < maxEvents:
		r.events = append(r.events, e)
	case !r.events[len(r.events)-1].gap:
		r.events = append(r.events, ownerEvent{gap: true})
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// nextEvent removes and returns the oldest event.
func (r *observerRun) nextEvent() (e ownerEvent, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) == 0 {
		return ownerEvent{}, false
	}
	e = r.events[0]
	r.events = r.events[1:]
	return e, true
}

// hasEvents reports whether there are events to follow.
func (r *observerRun) hasEvents() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.events) != 0
}

// follow reports the change of an event. If query is true, d is the time until the next query.
func (r *observerRun) follow(e ownerEvent) (d time.Duration, query bool) {
	switch {
	case e.gap:
		r.gap, r.subscribed, r.ahead = true, true, nil
		return 0, true
	case e.Kind == names.EventAcquired && e.Token > r.newest:
		return r.acquired(Owner{ID: e.Owner, Token: e.Token}), true
	case e.Kind == names.EventReleased, e.Kind == names.EventExpired, e.Kind == names.EventBroken:
		if now := r.o.Owner(); !now.IsZero() && now.Token == e.Token {
			r.reportNotice(Owner{})
			return 0, false
		}
		return 0, e.Token > r.newest // the notice of its beginning is lost
	}
	return 0, true // an old token, as a store that counts anew sends; or an unknown kind
}

// acquired reports a new owner, and returns the time until the next query. It first queries the
// windows, unless the next event has come: then the owner is not the owner any more.
func (r *observerRun) acquired(owner Owner) time.Duration {
	if r.ahead != nil && r.newest < r.ahead.Token && r.ahead.Token < owner.Token {
		r.report(*r.ahead) // its own notice is lost, since this later one has come
	}
	r.newest, r.gap = owner.Token, false
	if r.hasEvents() {
		r.reportNotice(owner)
		return 0
	}
	reply, err := r.ask()
	if err != nil {
		r.reportNotice(owner)
		return 0
	}
	if sameTenure(reply, owner) {
		owner = reply
	}
	r.reportNotice(owner)
	return r.compare(reply)
}

// reportNotice reports the owner by a notice. If notices have reached the token of r.ahead, no
// query needs to report it.
func (r *observerRun) reportNotice(owner Owner) {
	if r.ahead != nil && r.newest >= r.ahead.Token {
		r.ahead = nil
	}
	r.report(owner)
}

// query asks who owns the mutex, and returns the time until the next query.
func (r *observerRun) query() time.Duration {
	reply, err := r.ask()
	switch {
	case err != nil:
		d, longest := r.pause, queryRetryMax
		if refused(err) {
			longest = queryRefusedMax
		}
		r.pause = min(2*d, longest)
		return d/2 + rand.N(d)
	case r.hasEvents(): // follow these first
		return 0
	}
	r.pause = retryPause
	if r.gap {
		r.gap = !r.subscribed  // without a subscription each reply changes the owner
		r.newest = reply.Token // it may be another server, which counts anew
		r.report(reply)
	}
	return r.compare(reply)
}

// compare compares a reply outside a gap with the owner that is known, and returns the time until
// the next query.
func (r *observerRun) compare(reply Owner) time.Duration {
	known := sameTenure(reply, r.o.Owner())
	if known {
		r.report(reply) // its windows
	}
	switch {
	case r.ahead != nil:
		return r.count(reply)
	case known:
		return nextQuery(reply)
	}
	r.ahead, r.aheadAt, r.queries = &reply, time.Now(), 0
	return aheadPause
}

// count counts a query after the one whose reply is r.ahead. The last of them reports r.ahead,
// not its own reply: notices of changes after r.ahead may still be in flight.
func (r *observerRun) count(reply Owner) time.Duration {
	if early := aheadPause - time.Since(r.aheadAt); early > 0 {
		return early
	}
	r.aheadAt = time.Now()
	if r.queries++; r.queries < aheadQueries {
		return aheadPause
	}
	owner := *r.ahead
	r.ahead = nil
	if !owner.IsZero() {
		r.newest = owner.Token
	}
	if sameTenure(owner, reply) {
		owner = reply // renewed since
	}
	r.report(owner)
	return 0
}

// report has OnChange called if the owner has changed, or if this is the first report of the run.
func (r *observerRun) report(owner Owner) {
	first := !r.reported
	r.reported = true
	r.o.set(r, owner, first)
}

// nextQuery returns the time until the next query if no notice comes.
func nextQuery(owner Owner) time.Duration {
	if owner.IsZero() {
		return queryEvery
	}
	return min(max(time.Until(owner.TransitionAt), queryPause), queryEvery)
}

func sameTenure(a, b Owner) bool { return a.ID == b.ID && a.Token == b.Token }

func (r *observerRun) ask() (Owner, error) {
	ctx, cancel := context.WithTimeout(r.ctx, r.o.c.timeout)
	defer cancel()
	owner, err := r.o.c.owner(ctx, r.o.cfg.Mutex)
	owner.Since, owner.Connection = time.Time{}, Connection{} // notices do not have them
	switch {
	case err == nil && r.refused:
		r.refused = false
		r.o.c.log.Info("the server accepts the observer's queries again", "mutex", r.o.cfg.Mutex)
	case err == nil || r.ctx.Err() != nil:
	case errors.Is(err, ErrClosed):
		r.closed = err
		r.stop()
		r.o.c.log.Error("the observer stops: the go-redis client is closed", "mutex", r.o.cfg.Mutex, "err", err)
	case refused(err) && !r.refused:
		r.refused = true
		r.o.c.log.Error("the server refuses the observer's queries", "mutex", r.o.cfg.Mutex, "err", err)
	default:
		r.o.c.log.Debug("a query of an observer failed", "mutex", r.o.cfg.Mutex, "err", err)
	}
	return owner, err
}
