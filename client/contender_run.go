package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp/client/internal/names"
)

const (
	// retryPause is the pause after the first failed request of a contender. The pause doubles with
	// each further failure, up to the TTL or retryPauseMax, whichever is less. While the server's
	// store is misconfigured, the limit is misconfiguredPauseMax: no notice announces the repair.
	retryPause            = 100 * time.Millisecond
	retryPauseMax         = 15 * time.Second
	misconfiguredPauseMax = 2 * time.Second
	// After a failed renewal, an owner pauses at most for the rest of its lease divided by
	// renewalPauses.
	renewalPauses = 8
	// renewalPauseMin is the shortest pause of an owner. Without this limit, an owner whose
	// requests fail at once would retry without a pause near the end of its lease.
	renewalPauseMin = time.Millisecond
	// An owner subscribes to notices when its tenure has lasted for subscribeAfter. It needs them
	// only to learn at once that an administrator has broken its tenure. A short tenure ends soon
	// anyway, so it is not worth a subscription.
	subscribeAfter = 800 * time.Millisecond
	// maxRequests is how many requests of a contender may be in progress at the same time. A
	// request may still be in progress when the contender has stopped waiting for its reply.
	maxRequests = 8
)

// steps are functions that the goroutine of a contenderRun calls, one at a time. They must not
// block. All but acquired and lost may be nil.
type steps struct {
	acquired  func(*ownership, State)
	lost      func(*ownership, State) // the ownership context has ended
	renewed   func()                  // a new lease has begun
	asking    func(renewal bool)      // a request is about to be sent
	waiting   func(Owner)             // another contender owns the mutex or is next
	releasing func()                  // a release is about to be sent
	ended     func()                  // the run is done
	// failed is called when a request has failed. If final is true, it is useless to retry. owner
	// says whether the contender owns the mutex.
	failed func(err error, final, owner bool)
	// acquired and lost start callbacks. callbacksDone returns a channel that is closed when these
	// callbacks have returned. The run waits for this channel before it releases the mutex or asks
	// for the mutex again.
	callbacksDone func() <-chan struct{}
}

// contenderRun is one run of a contender, from its start until its mutex or queue entry is
// released. Only the goroutine of the run decides when to send a request.
//
//	   ┌──────── lost, or not renewed in time ──────────┐
//	   ▼                                                │
//	ACQUIRE ── acquired, renewed ──► owner ── due ──► GUARD ──► renewed: owner
//	   │  ▲
//	   ▼  │ a notice, or the owner's lease has ended
//	 waiting
//
// In every state, stop ends the loop. The run then ends the ownership, waits for the callbacks, and
// sends RELEASE until the server replies or the lease has ended. Then the run is done. If the
// release takes longer than Timeout, the run counts as done after Timeout, and continues to send
// RELEASE.
type contenderRun struct {
	*run
	c *Client
	terms
	steps
	report  report          // calls the Hooks of the Client
	base    context.Context // the parent of the ownership contexts; it does not end
	active  *active
	delay   time.Duration // the pause before the first request
	noQueue bool          // take no queue entry
	once    bool          // end the run when the mutex is not acquired at once, or is lost
	manual  bool          // renew only after askNow
	every   time.Duration // not 0: a waiter gets no notices, and asks again after this pause
	renewal time.Duration // not 0: the owner renews after this time at the latest

	wake   chan struct{} // has an element when askNow was called and no request was sent since
	owning atomic.Bool   // whether own is set; notified reads it on another goroutine
	resign atomic.Int32  // the resignation that requestResign has stored

	// Used by the goroutine of the run only.
	own       *ownership // nil = not the owner
	lastToken uint64     // the token of the last tenure that has ended; 0 = none
	seen      Owner      // the owner in the last reply
	listener  *listener  // nil = no subscription
	sequence  uint64     // how many requests were sent
	answers   chan answer
	slots     chan struct{}  // one element for each request in progress
	requests  sync.WaitGroup // requests in progress
	sent      instant        // when the last ACQUIRE or GUARD was sent
	present   bool           // the server may know the contender as the owner or a waiter
	uncertain bool           // a request without a reply may have begun a tenure of unknown token
	fresh     bool           // the server has not replied since present was set
	refused   bool           // the server refused a request and has accepted none since
	pause     time.Duration  // the pause after the next failure

	// guards is the parent context of each GUARD. giveUp ends this context, and does not wait for
	// replies to GUARDs: a GUARD that arrives after the release has no effect. A late ACQUIRE could
	// begin a tenure, so giveUp waits for its reply.
	guards    context.Context
	endGuards context.CancelFunc

	callEnded func() // calls steps.ended, at most once
}

// resignation says whether the owner must release the mutex, and when it then contends again.
type resignation int32

const (
	noResignation resignation = iota
	resignNow                 // contend again at once
	resignForTTL              // contend again after a TTL, so that another contender can acquire
)

// newContenderRun returns a run that has not begun. Its ownership contexts have the values of base.
func (c *Client) newContenderRun(base context.Context, t terms, h steps) *contenderRun {
	if longest := c.longest.Load(); longest != 0 {
		t.fit(time.Duration(longest))
	}
	r := &contenderRun{
		run: newRun(), c: c, terms: t, steps: h, pause: retryPause, wake: make(chan struct{}, 1),
		slots: make(chan struct{}, maxRequests), answers: make(chan answer, 2*maxRequests),
	}
	r.base = r.run.context(base)
	r.report = report{hooks: &c.hooks, ctx: r.base, terms: t}
	r.guards, r.endGuards = context.WithCancel(context.Background())
	r.callEnded = sync.OnceFunc(func() {
		if h.ended != nil {
			h.ended()
		}
	})
	return r
}

// begin starts the run. The error matches ErrClosed or ErrInUse.
func (r *contenderRun) begin() error {
	r.active = &active{mutex: r.mutex, id: r.id, stop: r.stop}
	if err := r.c.active.add(r.active); err != nil {
		return err
	}
	go r.loop()
	return nil
}

// loop is the goroutine of the run. It contends until the run is over, and then releases the mutex
// or the queue entry.
func (r *contenderRun) loop() {
	if r.delay == 0 || r.sleep(r.delay, nil) {
		for r.step() {
		}
	}
	err := r.giveUp()
	r.callEnded()
	r.c.active.remove(r.active, err)
	close(r.gone)
	r.finish(err)
}

// step sends one request and waits until the next is due. It returns false when the run is over.
func (r *contenderRun) step() bool {
	select {
	case <-r.wake: // this step sends the request for which askNow was called
	default:
	}
	expired := r.own != nil && r.own.left() <= 0
	switch { // expired comes last: a resignation or Unlock ends the ownership, too, and is no loss
	case resignation(r.resign.Load()) != noResignation:
		return r.doResign()
	case r.stopping():
		return false
	case expired: // the process was frozen, or the server did not reply
		return r.lose(ErrLost, Owner{}) && r.afterLoss()
	}
	reply, sent, err := r.ask()
	if r.stopping() {
		return false
	}
	if errors.Is(err, errOwnershipEnded) {
		return true
	}
	if err != nil {
		return r.fail(err)
	}
	r.c.outage.answered()
	r.fresh = false
	if r.refused {
		r.refused = false
		r.c.log.Info("the server accepts the contender's requests again", "mutex", r.mutex, "contender", r.id)
	}
	switch reply.status {
	case statusAcquired, statusRenewed:
		return r.hold(reply, sent)
	case statusLost:
		r.present, r.uncertain = len(r.slots) != 0, false // an ACQUIRE may still be in progress
		return r.lose(ErrLost, ownerOf(reply, time.Now())) && r.afterLoss()
	}
	late := len(r.slots) != 0 // an earlier request is still in progress
	r.present, r.uncertain = reply.status == statusQueued || late, late
	return r.wait(reply)
}

// hold handles a reply with the status acquired or renewed. from is the time of the request.
func (r *contenderRun) hold(reply reply, from instant) bool {
	if r.own == nil && reply.token == r.lastToken {
		// The server has renewed a tenure that has ended in this process. Release the mutex, so
		// that the run calls acquired only once for each token.
		return r.releaseEnded()
	}
	lease := r.granted(reply)
	o := r.own
	if o == nil {
		o = newOwnership(r.base, &r.c.suspend, reply.token, from, lease)
	} else {
		o.renew(from, lease)
	}
	if o.left() <= 0 {
		if r.own != nil {
			return true // the next step handles the end of the ownership
		}
		o.end(ErrLost) // the reply took longer than the lease
		r.uncertain = true
		return r.fail(errNoAnswer)
	}
	r.pause, r.uncertain = retryPause, false
	before := r.seen
	r.seen = Owner{ID: r.id, Token: reply.token, TTLAt: from.at.Add(min(r.ttl, reply.ttl)), TransitionAt: from.at.Add(lease)}
	if r.own == nil {
		r.own = o
		r.owning.Store(true)
		r.report.acquired(o.token)
		r.acquired(o, State{r.mutex, before, r.seen})
	} else if r.renewed != nil {
		r.renewed()
	}
	if r.manual {
		return r.sleepUntilExpired(o)
	}
	after := renewIn(r.ttl, r.transition)
	if r.renewal != 0 {
		after = min(after, r.renewal)
	}
	due := func() time.Duration { return after - now().since(from) }
	if r.listener == nil && due() > subscribeAfter {
		if !r.sleep(subscribeAfter, r.wake) {
			return false
		}
		if len(r.wake) != 0 || o.left() <= 0 {
			return true
		}
		r.subscribe()
	}
	return r.sleep(due(), r.wake)
}

// sleepUntilExpired waits until the lease has ended or askNow is called.
func (r *contenderRun) sleepUntilExpired(o *ownership) bool {
	for o.left() > 0 {
		if !r.sleep(o.left(), r.wake) {
			return false
		}
		if len(r.wake) != 0 {
			return true
		}
	}
	o.end(ErrLost) // a later reading of the clock could again show time left
	return !r.stopping()
}

// renewIn returns the time from a request that acquired or renewed a lease to the next renewal. The
// owner renews at the end of the TTL window, as in Simba, or when a third of the lease is left,
// whichever is earlier. So one slow or lost reply does not lose the lease.
func renewIn(ttl, transition time.Duration) time.Duration {
	return min(ttl, (ttl+transition)*2/3)
}

// wait handles a reply that did not grant the mutex. Without once and every, it waits until a
// notice comes, or until the owner's lease or the reservation of the next waiter ends.
func (r *contenderRun) wait(reply reply) bool {
	r.pause = retryPause
	r.seen = ownerOf(reply, time.Now())
	r.report.waits(r.seen)
	if r.waiting != nil {
		r.waiting(r.seen)
	}
	if r.once {
		return false
	}
	if r.every != 0 {
		return r.sleep(r.every, r.wake)
	}
	r.subscribe()
	return r.sleep(contendIn(reply.ttl, reply.transition), r.wake)
}

// contendIn returns the time after which a waiter that gets no notice asks again: about the end of
// the owner's lease. ttl and transition are the times until the ends of the owner's windows. A
// random part keeps the waiters from asking at the same moment (Simba, "Contender Delay").
func contendIn(ttl, transition time.Duration) time.Duration {
	const early, late = 200 * time.Millisecond, time.Second
	if transition == ttl {
		return transition + rand.N(late)
	}
	return max(0, transition-early+rand.N(early+late))
}

// lose ends the ownership. It returns false if the run must end, too.
func (r *contenderRun) lose(cause error, after Owner) bool {
	o := r.own
	_ = o.Err() // ends the ownership with ErrLost if the lease has ended
	expired := errors.Is(context.Cause(o), ErrLost)
	o.end(cause)
	cause = context.Cause(o)
	r.own, r.lastToken = nil, o.token
	r.owning.Store(false)
	state := State{r.mutex, r.seen, after}
	r.seen = after
	if errors.Is(cause, ErrLost) {
		r.c.log.Warn("mutex lost", "mutex", r.mutex, "contender", r.id, "token", o.token, "owner", after.ID)
		r.report.lost(after, expired)
	}
	r.lost(o, state)
	return !r.once
}

// afterLoss waits for the callbacks. It returns false if the run is to stop.
func (r *contenderRun) afterLoss() bool {
	return r.awaitCallbacks(r.quit) && !r.stopping()
}

// awaitCallbacks waits until the callbacks have returned or the channel enough is closed. It
// reports whether the callbacks have returned.
func (r *contenderRun) awaitCallbacks(enough <-chan struct{}) bool {
	if r.callbacksDone == nil {
		return true
	}
	overdue := time.NewTimer(r.c.timeout)
	defer overdue.Stop()
	done := r.callbacksDone()
	for {
		select {
		case <-done:
			return true
		case <-enough:
			return false
		case <-overdue.C:
			r.c.log.Warn("a callback has not returned after the ownership ended; until it returns, the contender neither releases the mutex nor acquires it again",
				"mutex", r.mutex, "contender", r.id, "after", r.c.timeout)
		}
	}
}

func (r *contenderRun) subscribe() {
	if r.listener == nil {
		r.listener = r.c.subscriptions.add(r.notified, names.ContenderChannel(r.mutex, r.id), names.MutexChannel(r.mutex))
	}
}

// notified handles a notice. A subscriber's connection calls it.
//
// A notice on the contender's own channel means that the contender is next. A notice on the channel
// of the mutex announces a new owner, or that the mutex is free and nobody is next.
//
// A waiter sends a request if it is next or the mutex is free. An owner sends a request if the
// notice announces another owner or the end of the owner's own tenure. After a new subscription a
// contender sends a request, since it may have missed notices.
func (r *contenderRun) notified(n notice) {
	next := n.channel == names.ContenderChannel(r.mutex, r.id)
	free := !next && strings.HasPrefix(n.payload, names.ReleasedPrefix)
	ask := n.subscribed || next || free
	if r.owning.Load() {
		another := !next && !n.subscribed && !free && n.payload != names.AcquiredNotice(r.id)
		ended := free && n.payload == names.ReleasedPrefix+r.id
		// If manual is set, a new subscription must not make the owner renew its lease.
		ask = another || ended || (n.subscribed || next) && !r.manual
	}
	if ask {
		r.askNow()
	}
}

// askNow makes the run send its next request at once.
func (r *contenderRun) askNow() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// sleep waits until d has passed, the channel early has an element, or the ownership has ended. It
// returns false if the run is to stop.
func (r *contenderRun) sleep(d time.Duration, early <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-early:
		r.askNow() // puts the element back, for step
	case <-r.ownershipEnded():
	case <-r.quit:
		return false
	}
	return !r.stopping()
}

// ownershipEnded returns a channel that is closed when the present ownership ends. It returns nil
// if the contender is not the owner.
func (r *contenderRun) ownershipEnded() <-chan struct{} {
	if r.own == nil {
		return nil
	}
	return r.own.Done()
}
