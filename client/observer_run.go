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
	// queryPause is the shortest time until the query at the end of a lease.
	queryPause = 10 * time.Millisecond
	// queryRetryMax is the longest pause after a query that failed. While the server refuses
	// queries, it is queryRefusedMax.
	queryRetryMax   = 2 * time.Second
	queryRefusedMax = 20 * time.Second
	// A reply may show an owner before the notice of that owner has come. The Observer waits for
	// the notice during aheadQueries queries, with aheadPause before each: 2 x pingEvery in all. In
	// this time the subscriber's connection receives something from the server or is replaced. One
	// long pause is not enough: the process could be frozen all the while, and read no notices.
	aheadPause   = 2 * pingEvery / aheadQueries
	aheadQueries = 3
	// maxEvents is how many events may wait for OnChange. The run drops further events.
	maxEvents = 1024
)

// ownerEvent has the fields that an Observer needs of a notice on the event channel of the mutex.
type ownerEvent struct {
	Kind  string `json:"event"`
	Owner string `json:"owner"`
	Token uint64 `json:"token"`

	gap bool // this is no notice; it marks a place where notices may be missing
}

// observerRun is one run of an Observer. Only its goroutine changes the owner that the Observer
// reports.
//
// Usually only notices change the owner that the Observer reports. A reply to SIMBA.OWNER may show
// an owner whose notice is still in flight. So a reply adds only the windows of the owner that the
// Observer knows already. A reply changes the owner in two cases:
//
//   - In a gap: at the start, and when notices may be missing.
//   - When the notice of the owner in the reply is lost. The run concludes this from the notice of
//     a later owner, or when aheadQueries more queries pass without the notice.
type observerRun struct {
	*run
	o    *Observer
	ctx  context.Context // ends with stop
	wake chan struct{}   // has an element when an event was added

	mu     sync.Mutex // guards what follows
	events []ownerEvent

	// Used by the goroutine of the run only.
	closed     error         // not nil: the go-redis client is closed
	reported   bool          // OnChange was called in this run
	subscribed bool          // the server has confirmed a subscription in this run
	gap        bool          // the next reply changes the owner
	newest     uint64        // the largest known token; a smaller one is of an earlier tenure
	ahead      *Owner        // an owner that a reply has shown before a notice did; nil = none
	aheadAt    time.Time     // the time when ahead was set or queries was increased
	queries    int           // how many queries followed since ahead was set
	pause      time.Duration // the pause after the next query that fails
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

// loop is the goroutine of the run. It subscribes before it queries, so that it misses no change
// after the first report. If the subscription takes longer than Timeout, the loop queries before it
// has subscribed.
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

// notified adds an event. A subscriber's connection calls it. For an invalid notice it adds the
// zero ownerEvent, which leads to a query.
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

func (r *observerRun) hasEvents() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.events) != 0
}

// follow handles an event and reports the change of the owner. If query is true, the next query is
// due after d.
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
		return 0, e.Token > r.newest // if larger, the notice that began this tenure is lost
	}
	// The kind is unknown, or a new owner has no larger token. A server that has lost its data may
	// count tokens from 1.
	return 0, true
}

// acquired reports a new owner, and returns the time until the next query. It first queries the
// windows of the owner. If more events are waiting, the tenure may be over already, so acquired
// does not query.
func (r *observerRun) acquired(owner Owner) time.Duration {
	if r.ahead != nil && r.newest < r.ahead.Token && r.ahead.Token < owner.Token {
		r.report(*r.ahead) // the notice of r.ahead is lost
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

// reportNotice reports the owner in a notice. It first clears r.ahead if the token of
// r.ahead is at most r.newest.
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
	case r.hasEvents(): // loop handles the events first
		return 0
	}
	r.pause = retryPause
	if r.gap {
		r.gap = !r.subscribed  // without a subscription each reply changes the owner
		r.newest = reply.Token // even if smaller: a server that has lost its data counts from 1
		r.report(reply)
	}
	return r.compare(reply)
}

// compare compares a reply with the owner that was reported last, and returns the time until the
// next query.
func (r *observerRun) compare(reply Owner) time.Duration {
	known := sameTenure(reply, r.o.Owner())
	if known {
		r.report(reply) // stores the new windows
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

// count counts the queries since r.ahead was set. After aheadQueries queries it reports r.ahead. It
// does not report the newest reply, because notices of changes after r.ahead may still be in
// flight.
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
		owner = reply // has the newer windows
	}
	r.report(owner)
	return 0
}

// report stores the owner. It calls OnChange if the owner has changed, or if this is the first
// report of the run.
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
	owner.Since, owner.Connection = time.Time{}, Connection{} // only Client.Owner sets them
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
