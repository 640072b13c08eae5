package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// retryPause is after a request of a contender that failed; it doubles up to the ttl,
	// at most retryPauseMax.
	retryPause    = 100 * time.Millisecond
	retryPauseMax = 15 * time.Second
	// mendPauseMax bounds the pause instead while the server's store is misconfigured.
	mendPauseMax = 20 * time.Second
	// guardPauses is into how many pauses what is left of a lease is divided between
	// attempts to renew it.
	guardPauses = 8
	// listenAfter is how long an owner owns the mutex before it listens, to know at once if its
	// tenure is broken. Who locks for less than that needs no subscription.
	listenAfter = 800 * time.Millisecond
	// maxStrays is how many requests may be under way that are not waited for any more.
	maxStrays = 4
)

// hooks are what a pursuit tells. They are called by its goroutine, one at a time, and
// must not block. All but acquired and lost may be nil.
type hooks struct {
	acquired  func(*ownership, State)
	lost      func(*ownership, State)     // its context has ended
	renewed   func()                      // the lease has begun anew
	asking    func(renewal bool)          // a request is about to be sent
	waiting   func(Owner)                 // another has it, or has its turn
	failed    func(err error, final bool) // a request failed; final: the server refuses it
	releasing func()                      // what it had is about to be released
	// settled returns what is closed when the callbacks that acquired and lost have begun
	// have returned: only then is the mutex asked for anew, or released.
	settled func() <-chan struct{}
}

// pursuit is one run of a contender, from its start until what it had is given up. Its
// goroutine is the only one that asks the server.
//
//	   ┌──────── lost, or not confirmed in time ────────┐
//	   ▼                                                │
//	ACQUIRE ── acquired, renewed ──► owner ── due ──► GUARD ──► renewed: owner
//	   │  ▲
//	   ▼  │ a notice, or the lease of the owner is over
//	 waiting
//
// From everywhere stop leads to: end the ownership, let the callbacks return, RELEASE. It is done
// then, or when that has taken as long as a request may; it goes on until the lease is over.
type pursuit struct {
	*run
	c *Client
	terms
	hooks
	base    context.Context // of its ownerships: it does not end
	member  *member         // of the roster; nil = another answers for it
	delay   time.Duration   // before the first request
	noQueue bool            // take no place in the queue
	once    bool            // end when the mutex is not to be had, or lost
	fixed   bool            // do not renew unless told to
	every   time.Duration   // not 0: the pause between requests of who waits; no notice shortens it

	poke     chan struct{} // ask now
	owning   atomic.Bool   // own is not nil; for who hears notices
	resigned atomic.Int32  // a resignation: it is to give up what it has, and to contend anew

	// Used by pursue only.
	own       *ownership // nil = not the owner
	ended     uint64     // the token of the last tenure that we were told of and that is over; 0 = none
	seen      Owner      // who owns it, as seen last
	ear       *listener
	asked     uint64         // how many requests were sent
	answers   chan answer    // of requests, late ones too
	slots     chan struct{}  // taken by requests under way
	strays    sync.WaitGroup // requests under way
	sent      instant        // when we last asked for a tenure
	present   bool           // the server may know us: as the owner, or in the queue
	uncertain bool           // as which, is not known
	left      error          // why something may be left at the server; may be read when gone is closed
	fresh     bool           // the server has not answered yet that it does
	refused   bool           // one since the last that was answered was refused
	pause     time.Duration  // after the next failure

	// Renewals are done in guards, which ends when we give up: one that is late then finds nothing
	// to renew. An ACQUIRE that is late could begin a tenure, so it is waited for.
	guards    context.Context
	endGuards context.CancelFunc
}

// Resignations.
const (
	no        int32 = iota
	atOnce          // contend anew at once
	afterATTL       // and not before another had the time to
)

// newPursuit returns one that has not begun. Values of base go into its ownerships.
func (c *Client) newPursuit(base context.Context, t terms, h hooks) *pursuit {
	p := &pursuit{
		run: newRun(), c: c, terms: t, hooks: h, pause: retryPause, poke: make(chan struct{}, 1),
		slots: make(chan struct{}, maxStrays), answers: make(chan answer, 2*maxStrays),
	}
	p.base = p.run.context(base)
	p.guards, p.endGuards = context.WithCancel(context.Background())
	return p
}

// begin has it run. The error says that the Client is closed, or that the id is in use.
func (p *pursuit) begin() error {
	p.member = &member{mutex: p.mutex, id: p.id, stop: p.stop}
	if err := p.c.roster.enter(p.member); err != nil {
		return err
	}
	go p.pursue()
	return nil
}

// pursue is done when nothing of it is left, so that it may be begun anew at once, or when it is
// late.
func (p *pursuit) pursue() {
	if p.delay == 0 || p.sleep(p.delay, nil) {
		for p.step() {
		}
	}
	err := p.giveUp()
	p.left = err
	if p.member != nil {
		p.c.roster.leave(p.member, err)
	}
	close(p.gone)
	p.finish(err)
}

// step asks once and waits until it is time to ask again; false means that it is over.
func (p *pursuit) step() bool {
	select {
	case <-p.poke: // what it is about is asked now
	default:
	}
	over := p.own != nil && p.own.left() <= 0
	switch { // what ends an ownership says so before it does
	case p.resigned.Load() != no:
		return p.resign()
	case p.quitting():
		return false
	case over: // the process was stopped, or nobody answered
		return p.lose(ErrLost, Owner{}) && p.afterwards()
	}
	r, sent, err := p.ask()
	if p.quitting() {
		return false
	}
	if errors.Is(err, errOver) {
		return true
	}
	if err != nil {
		return p.fail(err)
	}
	p.c.outage.answered()
	p.fresh = false
	if p.refused {
		p.refused = false
		p.c.log.Info("the server refuses a contender no more", "mutex", p.mutex, "contender", p.id)
	}
	switch r.status {
	case statusAcquired, statusRenewed:
		return p.hold(r, sent)
	case statusLost:
		p.present, p.uncertain = len(p.slots) != 0, false // an ACQUIRE may be on its way still
		return p.lose(ErrLost, ownerOf(r, time.Now())) && p.afterwards()
	}
	late := len(p.slots) != 0 // an earlier request is on its way still
	p.present, p.uncertain = r.status == statusQueued || late, late
	return p.wait(r)
}

// answer is that of the server to a request.
type answer struct {
	n     uint64 // the request's number
	token uint64 // of the tenure that it was to renew; 0 = it was an ACQUIRE
	sent  instant
	reply reply
	err   error
}

// ask makes the request that is due: GUARD by an owner, ACQUIRE by all others. A request that is
// not answered in time, or when it is to stop, is left alone; what it says of the
// tenure is heard if it comes before the lease is over.
func (p *pursuit) ask() (r reply, sent instant, err error) {
	limit, life, token := p.c.timeout, p.c.timeout, uint64(0)
	if p.own != nil {
		life, token = p.own.left(), p.own.token
		limit = max(min(limit, life/2), time.Millisecond)
	}
	enough := time.NewTimer(limit)
	defer enough.Stop()
	slots := p.slots
	n := uint64(0) // not sent yet
	over := p.ownershipOver()
	for {
		select {
		case slots <- struct{}{}:
			slots = nil
			n = p.send(token, life)
		case a := <-p.answers:
			if a.n != n && (token == 0 || a.token != token || a.err != nil) {
				continue
			}
			p.uncertain = p.uncertain || token == 0 && a.err != nil && (!refused(a.err) || misconfigured(a.err))
			return a.reply, a.sent, a.err
		case <-over:
			return r, sent, errOver
		case <-enough.C:
			p.uncertain = p.uncertain || token == 0
			return r, sent, errUnanswered
		case <-p.quit:
			p.uncertain = p.uncertain || token == 0
			return r, sent, ErrReleased
		}
	}
}

// send sends a request and returns its number. It has taken a slot.
func (p *pursuit) send(token uint64, life time.Duration) uint64 {
	if p.asking != nil {
		p.asking(token != 0)
	}
	p.asked++
	a := answer{n: p.asked, token: token, sent: now()}
	if token == 0 {
		p.fresh = p.fresh || !p.present
		p.present = true
	}
	p.sent = a.sent
	p.strays.Go(func() {
		under := context.Background()
		if token != 0 {
			under = p.guards
		}
		ctx, cancel := context.WithTimeout(under, life)
		defer cancel()
		if token != 0 {
			a.reply, a.err = p.c.guard(ctx, p.terms, token)
		} else {
			a.reply, a.err = p.c.acquire(ctx, p.terms, p.noQueue)
		}
		<-p.slots // before the answer: who has it knows that this one is not under way
		select {
		case p.answers <- a:
		default: // nobody waits for so many
		}
	})
	return a.n
}

// fail judges a request that failed.
func (p *pursuit) fail(err error) bool {
	closed := errors.Is(err, ErrClosed)
	if p.fresh && refused(err) && !p.uncertain && len(p.slots) == 0 {
		p.present = false // there is nothing to give up
	}
	final, longest := closed || refused(err), min(p.ttl, retryPauseMax)
	if misconfigured(err) {
		longest = mendPauseMax
	}
	switch {
	case closed:
		p.c.log.Error("a contender ends, for it cannot ask any more", "mutex", p.mutex, "contender", p.id, "err", err)
	case !final:
		p.c.outage.met(p.terms, err)
	case !p.refused:
		p.refused = true
		p.c.log.Error("the server refuses a contender", "mutex", p.mutex, "contender", p.id, "err", err)
	}
	if p.failed != nil {
		p.failed(err, final)
	}
	if closed {
		return false
	}
	if p.own != nil {
		d := min(p.pause, p.own.left()/guardPauses)
		if final {
			p.pause = min(2*p.pause, longest)
		}
		return p.sleep(d, nil)
	}
	if p.once {
		return false
	}
	if p.every != 0 {
		return p.sleep(p.every, p.poke)
	}
	p.listen() // which tells when the server is there again
	d := p.pause
	if errors.Is(err, errUnanswered) {
		d = retryPause // it has cost time enough
	} else {
		p.pause = min(2*p.pause, longest)
	}
	return p.sleep(d/2+rand.N(d), p.poke)
}

// hold is after the mutex was acquired or renewed by a request that was sent at from.
func (p *pursuit) hold(r reply, from instant) bool {
	if p.own == nil && r.token == p.ended { // by the server's clock it was not over yet; but it was told to be
		return p.drop(r.token)
	}
	lease := min(p.lease(), r.transition)
	o := p.own
	if o == nil {
		o = newOwnership(p.base, &p.c.vigil, r.token, from, lease)
	} else {
		o.renew(from, lease)
	}
	if o.left() <= 0 {
		if p.own != nil {
			return true // step says what has ended it
		}
		o.end(ErrLost) // the answer took longer than the lease
		p.uncertain = true
		return p.fail(errUnanswered)
	}
	p.pause, p.uncertain = retryPause, false
	before := p.seen
	p.seen = Owner{ID: p.id, Token: r.token, TTLAt: from.at.Add(min(p.ttl, r.ttl)), TransitionAt: from.at.Add(lease)}
	if p.own == nil {
		p.own = o
		p.owning.Store(true)
		p.acquired(o, State{p.mutex, before, p.seen})
	} else {
		if p.renewed != nil {
			p.renewed()
		}
	}
	if p.fixed {
		return p.endure(o)
	}
	due := func() time.Duration { return renewIn(p.ttl, p.transition) - now().since(from) }
	if p.ear == nil && due() > listenAfter {
		if !p.sleep(listenAfter, p.poke) {
			return false
		}
		if len(p.poke) != 0 || o.left() <= 0 {
			return true
		}
		p.listen()
	}
	return p.sleep(due(), p.poke)
}

// drop releases a tenure that is over for us, so that none is told twice; then it is asked for
// anew.
func (p *pursuit) drop(token uint64) bool {
	if _, err := p.release(token, p.quit); err != nil {
		return !p.quitting() && p.fail(err)
	}
	return !p.quitting()
}

// askToResign ends an ownership and has the pursuit resign. It does not wait.
func (p *pursuit) askToResign(own *ownership, how int32) {
	p.resigned.Store(how)
	_ = own.Err() // by the clock it may be lost: that comes first
	own.end(ErrReleased)
	p.prod()
}

// resign gives up what it has, and contends anew when the callbacks have returned.
func (p *pursuit) resign() bool {
	if p.own != nil && !p.lose(ErrReleased, Owner{}) || !p.afterwards() {
		return false
	}
	if _, err := p.release(p.ended, p.quit); err != nil {
		return !p.quitting() && p.fail(err)
	}
	if p.resigned.Swap(no) == afterATTL {
		return p.sleep(p.ttl, nil)
	}
	return !p.quitting()
}

// release gives a tenure up, 0 = any and the place in the queue. It waits as long as a request may
// take, or for enough; a request that takes longer goes on.
func (p *pursuit) release(token uint64, enough <-chan struct{}) (released bool, err error) {
	type outcome struct {
		released bool
		err      error
	}
	answer := make(chan outcome, 1)
	p.strays.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), p.c.timeout)
		defer cancel()
		released, err := p.c.release(ctx, p.terms, token)
		answer <- outcome{released, err}
	})
	late := time.NewTimer(p.c.timeout)
	defer late.Stop()
	select {
	case o := <-answer:
		return o.released, o.err
	case <-late.C:
	case <-enough:
	}
	return false, errUnanswered
}

// endure waits until the lease is over or p is told to renew it.
func (p *pursuit) endure(o *ownership) bool {
	for o.left() > 0 {
		if !p.sleep(o.left(), p.poke) {
			return false
		}
		if len(p.poke) != 0 {
			return true
		}
	}
	o.end(ErrLost) // two looks at the clock may differ: it was over once, so it is
	return !p.quitting()
}

// renewIn is when an owner renews its lease, from when it asked for it: at the end of its TTL
// window, as Simba does, but when a third of the lease is left at the latest, so that a slow or
// lost answer does not lose it.
func renewIn(ttl, transition time.Duration) time.Duration {
	return min(ttl, (ttl+transition)*2/3)
}

// wait waits until another's lease, or turn, is over, or a notice comes.
func (p *pursuit) wait(r reply) bool {
	p.pause = retryPause
	p.seen = ownerOf(r, time.Now())
	if p.waiting != nil {
		p.waiting(p.seen)
	}
	if p.once {
		return false
	}
	if p.every != 0 {
		return p.sleep(p.every, p.poke)
	}
	p.listen()
	return p.sleep(contendIn(r.ttl, r.transition), p.poke)
}

// contendIn is when a contender asks again that no notice calls, from what is left of the owner's
// windows: at the end of its lease, give or take so much that not all ask at the same
// moment (Simba, "Contender Delay").
func contendIn(ttl, transition time.Duration) time.Duration {
	const early, late = 200 * time.Millisecond, time.Second
	if transition == ttl {
		return transition + rand.N(late)
	}
	return max(0, transition-early+rand.N(early+late))
}

// lose notes that the mutex is not ours any more; false means that this is the end.
func (p *pursuit) lose(cause error, after Owner) bool {
	o := p.own
	_ = o.Err() // by the clock it may be lost: that comes first
	o.end(cause)
	cause = context.Cause(o)
	p.own, p.ended = nil, o.token
	p.owning.Store(false)
	state := State{p.mutex, p.seen, after}
	p.seen = after
	if errors.Is(cause, ErrLost) {
		p.c.log.Warn("lost a mutex", "mutex", p.mutex, "contender", p.id, "token", o.token, "owner", after.ID)
	}
	p.lost(o, state)
	return !p.once
}

// afterwards waits for the callbacks; false means that it is to stop.
func (p *pursuit) afterwards() bool {
	return p.awaitCallbacks(p.quit) && !p.quitting()
}

// awaitCallbacks waits until the callbacks have returned, or for enough; it reports whether they
// have.
func (p *pursuit) awaitCallbacks(enough <-chan struct{}) bool {
	if p.settled == nil {
		return true
	}
	overdue := time.NewTimer(p.c.timeout)
	defer overdue.Stop()
	settled := p.settled()
	for {
		select {
		case <-settled:
			return true
		case <-enough:
			return false
		case <-overdue.C:
			p.c.log.Warn("a callback has not returned, though the mutex is not owned any more; nothing is asked for or released before it has",
				"mutex", p.mutex, "contender", p.id, "after", p.c.timeout)
		}
	}
}

// listen begins to hear notices.
func (p *pursuit) listen() {
	if p.ear == nil {
		p.ear = p.c.radio.listen(p.heard, contenderChannel(p.mutex, p.id), mutexChannel(p.mutex))
	}
}

// heard is called by the radio. A contender that waits hears of its turn on its own channel, and on
// the mutex' that it is free and nobody is next. An owner must hear of another there, and of its
// own end, but not of the one before. After a break anything may have happened.
func (p *pursuit) heard(n notice) {
	turn := n.channel == contenderChannel(p.mutex, p.id)
	free := !turn && strings.HasPrefix(n.payload, releasedPrefix)
	news := n.fresh || turn || free
	if p.owning.Load() {
		rival := !turn && !n.fresh && !free && n.payload != acquiredNotice(p.id)
		over := free && n.payload == releasedPrefix+p.id
		news = rival || over || (n.fresh || turn) && !p.fixed // what a break may have hidden must not renew what is not to be renewed
	}
	if news {
		p.prod()
	}
}

// prod has it ask now.
func (p *pursuit) prod() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// sleep returns after d, or when early says so; false means that it is to stop.
func (p *pursuit) sleep(d time.Duration, early <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-early:
		p.prod() // step takes it
	case <-p.ownershipOver():
	case <-p.quit:
		return false
	}
	return !p.quitting()
}

// errOver means that the ownership has ended while its renewal was under way.
var errOver = errors.New("the ownership has ended")

// ownershipOver is closed when the present ownership ends; nil = there is none.
func (p *pursuit) ownershipOver() <-chan struct{} {
	if p.own == nil {
		return nil
	}
	return p.own.Done()
}

// giveUp ends it: nothing of it is left, here or at the server, unless the server cannot be
// asked until what may be left there has lapsed.
func (p *pursuit) giveUp() error {
	p.stop() // of what ends by itself
	token := uint64(0)
	if p.own != nil {
		token = p.own.token
		p.lose(ErrReleased, Owner{})
	}
	if p.ear != nil {
		p.c.radio.leave(p.ear)
	}
	p.awaitCallbacks(nil)
	if p.releasing != nil {
		p.releasing()
	}
	p.endGuards()
	late := time.AfterFunc(p.c.timeout, func() { p.finish(errUnanswered) })
	defer late.Stop()
	err := p.farewell(token)
	p.strays.Wait() // of releases that took too long
	return err
}

// farewell tells the server that it goes. It tries until what may be left there has lapsed.
func (p *pursuit) farewell(token uint64) error {
	p.strays.Wait() // none may come after the release
	if !p.present {
		return nil
	}
	if p.uncertain {
		token = 0
	}
	for asked := false; ; asked = true {
		released, err := p.release(token, nil)
		switch {
		case err == nil:
			if token != 0 && !released && !asked {
				return ErrLost
			}
			return nil
		case refused(err), errors.Is(err, ErrClosed), now().since(p.sent) > p.lease():
			return err
		}
		p.pause = min(2*p.pause, time.Second)
		time.Sleep(p.pause / 2)
	}
}
