package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp/client/internal/names"
)

const (
	// retryPause is the pause after the first failed request of a contender. The pause doubles with
	// each further failure, up to the TTL or retryPauseMax, whichever is less.
	retryPause    = 100 * time.Millisecond
	retryPauseMax = 2 * time.Second
	// pollMax is the longest pause of a waiter that gets neither outcomes nor notices.
	pollMax = time.Second
)

// attempt is the effort of one contender to own a mutex. It runs on the goroutine of the caller.
//
//	asking ──acquired──► newLease
//	 ▲ │ queued
//	 │ ▼
//	waiting: for the outcome by SIMBA.NEXT, or, if there is none, for a notice or the end of the lease
//
// Whatever ends the wait, the contender asks again, unless the outcome is a fresh grant.
type attempt struct {
	c        *Client
	terms    *terms
	of       *contender
	try      bool   // ask once, and take no queue entry
	auto     bool   // of the lease; the lease outlives the context of the attempt
	lastOver uint64 // the token of the contender's last tenure; not 0 = ask again even if the server refuses

	began     instant       // when the first request was sent; zero = none was
	contended bool          // the event Contended was reported
	owner     Owner         // in the last reply
	failure   error         // of the last request; nil = it was answered
	refused   bool          // a request was refused, which is logged, and none was answered since
	doubled   bool          // another waiter with this id was logged
	uncertain bool          // a request to acquire got no reply
	polls     bool          // the connection for outcomes could not be opened
	answered  bool          // the server has answered a request
	present   bool          // the server has said that it keeps something for the contender
	flying    chan struct{} // closed when the last request has ended; nil = it has
	wait      *wait         // of the last request; nil = it had none
	listener  *listener
	wake      chan struct{} // has an element after a notice
}

// run asks until the contender owns the mutex. The error is that of ctx, of the server's refusal,
// errClientClosed, or errHeld if try is set. After an error the caller must call giveUp.
func (a *attempt) run(ctx context.Context) (*lease, error) {
	defer a.unsubscribe()
	pause := retryPause
	for {
		reply, sent, err := a.ask(ctx)
		var d time.Duration // until the contender asks again
		if err == nil {
			pause = retryPause
			if reply.status == statusQueued || reply.status == statusBusy && !a.try {
				reply, sent, d, err = a.await(ctx, reply, sent)
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, errClientClosed):
			return nil, err
		case err != nil && a.shorten(err):
		case err != nil:
			if final := a.failed(err); final || a.try {
				return nil, err
			}
			d = pause/2 + rand.N(pause)
			if !errors.Is(err, errNoAnswer) { // else the contender has already waited for the timeout
				pause = min(2*pause, a.terms.ttl, retryPauseMax)
			}
		case reply.status == statusAcquired || reply.status == statusRenewed:
			var l *lease
			if l, d, err = a.own(ctx, reply, sent); l != nil || err != nil {
				return l, err
			}
		case a.try:
			return nil, errHeld
		}
		if err := a.c.sleep(ctx, d, a.wake); err != nil {
			return nil, err
		}
	}
}

// await opens the connection for outcomes, waits there, or, without it, polls. Unless it returns a grant,
// the contender asks again after again.
func (a *attempt) await(ctx context.Context, r reply, sent instant) (_ reply, _ instant, again time.Duration, err error) {
	switch {
	case r.status == statusBusy:
		if opened := a.c.waits.open(); opened != nil {
			select {
			case <-opened:
			case <-ctx.Done():
			case <-a.c.contenders.closing:
			}
		}
		a.polls = !a.c.waits.isOpen()
		return r, sent, 0, nil
	case r.request == 0:
		a.polls = false // try again to open the connection
		a.subscribe()
		return r, sent, a.contendIn(r), nil
	}
	a.unsubscribe()
	select {
	case o := <-a.wait.outcome:
		switch {
		case errors.Is(o.err, errWaiterGone):
			return r, sent, rand.N(retryPause), nil // not all waiters of a server at once
		case o.err != nil:
			return r, sent, 0, o.err
		case o.reply.status == statusAcquired && now().since(sent) > a.terms.lease()/3:
			r, sent, err = a.guard(ctx, o.reply)
			return r, sent, 0, err
		case o.reply.status == statusQueued && !a.doubled && !a.uncertain:
			a.doubled = true
			a.c.log.Warn("another waiter has the same contender id", "mutex", a.terms.mutex, "contender", a.terms.id)
		}
		return o.reply, sent, retryPause, nil
	case <-ctx.Done():
		return r, sent, 0, ctx.Err()
	case <-a.c.contenders.closing:
		return r, sent, 0, errClientClosed
	}
}

// errHeld is the error of an attempt that did not wait.
var errHeld = errors.New("another contender owns the mutex or is next")

// ask sends an ACQUIRE. If the connection for outcomes is up, the request waits there. If not, it takes no
// queue entry, unless the contender polls.
func (a *attempt) ask(ctx context.Context) (reply, instant, error) {
	a.forget()
	if err := ctx.Err(); err != nil {
		return reply{}, instant{}, err
	}
	var v via
	if !a.try {
		a.wait = a.c.waits.add()
		if a.wait != nil {
			v = a.wait.via
		}
	}
	a.c.report(ctx, a.terms, Event{Kind: "Asked"})
	sent := now()
	if a.began.at.IsZero() {
		a.began = sent
	}
	got, err := a.acquire(ctx, v)
	switch {
	case err == nil:
		a.note(ctx, got)
		a.present = a.present || got.status != statusBusy
	case !refused(err) || misconfigured(err):
		a.uncertain = true
	}
	return got, sent, err
}

// acquire sends a request that goes on when ctx or the Client ends, so that the RELEASE that follows
// does not overtake it.
func (a *attempt) acquire(ctx context.Context, v via) (reply, error) {
	noQueue := a.try || v.n == 0 && !a.polls
	if ctx.Done() == nil {
		return a.c.acquire(ctx, a.terms, noQueue, v)
	}
	var got reply
	var err error
	flying := make(chan struct{})
	a.flying = flying
	go func() {
		defer close(flying)
		got, err = a.c.acquire(context.WithoutCancel(ctx), a.terms, noQueue, v)
	}()
	select {
	case <-flying:
		return got, err
	case <-ctx.Done():
		return reply{}, ctx.Err()
	case <-a.c.contenders.closing:
		return reply{}, errClientClosed
	}
}

// guard renews the lease of a grant that has come so late that its lease, which counts from the
// request, may be over.
func (a *attempt) guard(ctx context.Context, granted reply) (reply, instant, error) {
	sent := now()
	got, err := a.c.guard(ctx, a.c.timeout, a.terms, granted.token)
	a.uncertain = a.uncertain || err != nil
	return got, sent, err
}

// note notes that the server has replied.
func (a *attempt) note(ctx context.Context, r reply) {
	a.c.outage.answered()
	a.answered, a.failure = true, nil
	if a.refused {
		a.refused = false
		a.c.log.Info("the server accepts the contender's requests again", "mutex", a.terms.mutex, "contender", a.terms.id)
	}
	if r.status == statusQueued || r.status == statusBusy {
		a.owner = ownerOf(r, time.Now())
		if !a.contended {
			a.contended = true
			a.c.report(ctx, a.terms, Event{Kind: "Contended", Owner: a.owner})
		}
	}
}

// shorten shortens default windows that the server refuses as too long.
func (a *attempt) shorten(err error) bool {
	var long *TooLongError
	if !errors.As(err, &long) || a.terms.lease() <= long.Longest || !a.terms.fit(long.Longest) {
		return false
	}
	a.answered = true
	a.c.longest.Store(int64(long.Longest))
	a.c.log.Warn("the server refuses the default lease as too long; a shorter one is used", "ttl", a.terms.ttl, "transition", a.terms.transition)
	return true
}

// failed notes a failed request. It returns true if it is useless to ask again. The caller of a
// contender that persists is not told of refusals, so they are logged.
func (a *attempt) failed(err error) (final bool) {
	a.failure = err
	a.present = a.present && !refused(err)
	final = errors.Is(err, ErrClosed) || isFinal(err) && a.lastOver == 0
	a.c.noteFailure(a.terms, err, !a.refused && !final)
	a.refused = a.refused || refused(err)
	return final
}

// noteFailure logs a failed request. A refusal is logged if first is set.
func (c *Client) noteFailure(t *terms, err error, first bool) {
	switch {
	case !isFinal(err):
		c.outage.failed(t, err)
	case first:
		c.log.Error("the server refuses the contender's requests", "mutex", t.mutex, "contender", t.id, "err", err)
	}
}

// own begins the tenure that a reply has granted. Without a lease and an error, the contender asks
// again after again.
func (a *attempt) own(ctx context.Context, r reply, sent instant) (_ *lease, again time.Duration, err error) {
	if r.status == statusRenewed && r.token == a.lastOver {
		// The server has renewed a tenure that has ended in this process. End it there, too, so
		// that each tenure begins once.
		return a.endLast(ctx, r)
	}
	if r.token < a.lastOver {
		a.c.log.Warn("the server hands out smaller tokens than before: has it lost its data?", "mutex", a.terms.mutex, "token", r.token, "before", a.lastOver)
	}
	base := ctx
	if a.auto {
		base = context.WithoutCancel(ctx)
	}
	l := newLease(base, a, r.token, sent, min(a.terms.lease(), r.transition))
	if l.left() <= 0 { // the reply took longer than the lease
		l.cancel(ErrLost)
		a.uncertain = true
		if a.try {
			return nil, 0, errNoAnswer
		}
		return nil, retryPause, nil
	}
	l.hooks.Add(1)
	if err := a.c.contenders.hold(a.of, l); err != nil {
		l.cancel(err)
		return nil, 0, err
	}
	a.forget()
	a.c.report(ctx, a.terms, Event{Kind: "Acquired", Token: l.token, Took: now().since(a.began)})
	l.hooks.Done()
	l.act()
	return l, 0, nil
}

// endLast releases the tenure of a reply. If the server refuses that, as Lead has logged, the lease
// must end first: an ACQUIRE would renew it.
func (a *attempt) endLast(ctx context.Context, r reply) (_ *lease, again time.Duration, err error) {
	_, err = a.c.release(ctx, a.terms, r.token, via{}, false)
	switch {
	case refused(err):
		a.refused = true
		return nil, max(retryPause, r.transition), nil
	case err != nil:
		a.uncertain = true
		if ctx.Err() != nil || a.failed(err) {
			return nil, 0, err
		}
	}
	return nil, retryPause, nil
}

// contendIn returns the time after which a waiter that gets no notice asks again: about the end of
// the owner's lease. A random part keeps the waiters from asking at the same moment (Simba,
// "Contender Delay").
func (a *attempt) contendIn(r reply) time.Duration {
	const early, late = 200 * time.Millisecond, time.Second
	d := max(0, r.transition-early+rand.N(early+late))
	if r.transition == r.ttl {
		d = r.transition + rand.N(late)
	}
	if a.c.subscriptions.denied.Load() {
		d = min(d, pollMax)
	}
	return d
}

func (a *attempt) subscribe() {
	if a.wake == nil { // not again: an earlier listener may still get notices
		a.wake = make(chan struct{}, 1)
	}
	if a.listener == nil {
		a.listener = a.c.subscriptions.add(a.notified, names.ContenderChannel(a.terms.mutex, a.terms.id), names.MutexChannel(a.terms.mutex))
	}
}

func (a *attempt) unsubscribe() {
	a.c.subscriptions.remove(a.listener)
	a.listener = nil
}

// notified wakes a polling waiter if it is next, if the mutex is free, or after a new subscription.
func (a *attempt) notified(n notice) {
	next := n.channel == names.ContenderChannel(a.terms.mutex, a.terms.id)
	if n.subscribed || next || strings.HasPrefix(n.payload, names.ReleasedPrefix) {
		poke(a.wake)
	}
}

// forget ends the interest in the last request.
func (a *attempt) forget() {
	if a.wait != nil {
		a.c.waits.remove(a.wait)
		a.wait = nil
	}
}

// giveUp ends an attempt that has brought no tenure: it releases what the server may keep. Then the
// contender leaves the Client, and the result is closed. If the RELEASE reaches another server than
// the wait, the grant comes by SIMBA.NEXT, and is given back.
func (a *attempt) giveUp(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	end := func(err error) {
		if !a.began.at.IsZero() {
			a.c.report(ctx, a.terms, Event{Kind: "NotAcquired", Took: now().since(a.began), Owner: a.owner, Err: a.failure})
		}
		a.c.contenders.remove(a.of, err)
		close(done)
	}
	var v via
	if a.wait != nil && a.terms.named {
		v = a.wait.via
	}
	a.forget()
	if !a.present && !a.uncertain {
		end(nil)
		return done
	}
	a.c.contenders.setLeaving(a.of)
	go func() {
		if a.flying != nil {
			<-a.flying
		}
		err := a.c.until(a.terms.lease(), func() error { return a.release(context.WithoutCancel(ctx), v) })
		if refused(err) {
			a.c.noteFailure(a.terms, err, !a.refused)
		}
		end(err)
	}()
	return done
}

// release releases what the server may keep for the contender. A named contender says what that is,
// since a late RELEASE could end a later tenure of the id. The queue entry of one that polls stays until
// the queue grace after the owner's lease. The server offers it nothing.
func (a *attempt) release(ctx context.Context, v via) error {
	if !a.terms.named {
		_, err := a.c.release(ctx, a.terms, 0, via{}, true)
		return err
	}
	if v.n != 0 {
		if released, err := a.c.release(ctx, a.terms, 0, v, true); released || err != nil || !a.uncertain && a.c.waits.isOpen() {
			return err
		}
	}
	o, err := a.c.owner(ctx, a.terms.mutex)
	if err == nil && o.ID == a.terms.id {
		_, err = a.c.release(ctx, a.terms, o.Token, via{}, true)
	}
	return err
}
