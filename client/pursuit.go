package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
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
	// maxStrays is how many requests may be under way that are not waited for any more.
	maxStrays = 4
)

var errUnanswered = errors.New("no answer in time")

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
// From everywhere stop leads to: end the ownership, let the callbacks return, RELEASE.
type pursuit struct {
	c *Client
	terms
	hooks
	delay   time.Duration // before the first request
	noQueue bool          // take no place in the queue
	once    bool          // end when the mutex is not to be had, or lost
	fixed   bool          // do not renew unless told to
	every   time.Duration // not 0: the pause between requests of who waits; no notice shortens it

	stop func()        // ends it, without waiting
	quit chan struct{} // closed by stop
	done chan struct{} // closed when run returns
	poke chan struct{} // ask now
	err  error         // of giving up; may be read when done is closed

	owning atomic.Bool // own is not nil; for who hears notices

	// Used by run only.
	own       *ownership // nil = not the owner
	over      uint64     // the token of the last tenure that we were told of and that is over; 0 = none
	last      Owner      // as seen last
	ear       *listener
	asked     uint64         // how many requests were sent
	answers   chan answer    // of requests, late ones too
	slots     chan struct{}  // taken by requests under way
	strays    sync.WaitGroup // requests under way
	sent      instant        // when we last asked for a tenure
	present   bool           // the server may know us: as the owner, or in the queue
	uncertain bool           // as which, is not known
	failing   bool           // the last request failed
	refusing  bool           // and one since the last that did not was refused
	pause     time.Duration  // after the next failure

	// Renewals are done in guards, which ends when we give up: one that is late then finds nothing to
	// renew. An ACQUIRE that is late could begin a tenure, so it is waited for.
	guards    context.Context
	endGuards context.CancelFunc
}

func (c *Client) pursue(t terms, h hooks) *pursuit {
	p := &pursuit{
		c: c, terms: t, hooks: h, pause: retryPause,
		quit: make(chan struct{}), done: make(chan struct{}), poke: make(chan struct{}, 1),
		slots: make(chan struct{}, maxStrays), answers: make(chan answer, 2*maxStrays),
	}
	p.guards, p.endGuards = context.WithCancel(context.Background())
	p.stop = sync.OnceFunc(func() {
		c.farewells.Add(1)
		close(p.quit)
	})
	return p
}

func (p *pursuit) run() {
	defer p.c.farewells.Done()
	defer close(p.done)
	defer p.giveUp()
	if p.delay > 0 && !p.sleep(p.delay, nil) {
		return
	}
	for p.step() {
	}
}

// step asks once and waits until it is time to ask again; false means that it is over.
func (p *pursuit) step() bool {
	select {
	case <-p.poke: // what it is about is asked now
	default:
	}
	if p.own != nil && p.own.left() <= 0 { // the process was stopped, or nobody answered
		return p.lose(ErrLost, Owner{}) && p.afterwards()
	}
	out, sent, err := p.ask()
	if p.quitting() {
		return false
	}
	if err != nil {
		return p.fail(err)
	}
	if p.failing {
		p.failing, p.refusing = false, false
		p.c.log.Info("the server answers again", "mutex", p.mutex, "contender", p.id)
	}
	switch out.Status {
	case simba.StatusAcquired, simba.StatusRenewed:
		return p.hold(out, sent)
	case simba.StatusLost:
		p.present, p.uncertain = len(p.slots) != 0, false // an ACQUIRE may be on its way still
		return p.lose(ErrLost, ownerOf(out, time.Now())) && p.afterwards()
	}
	late := len(p.slots) != 0 // an earlier request is on its way still
	p.present, p.uncertain = out.Status == simba.StatusQueued || late, late
	return p.wait(out)
}

// answer is that of the server to a request.
type answer struct {
	n     uint64 // the request's number
	token uint64 // of the tenure that it was to renew; 0 = it was an ACQUIRE
	sent  instant
	out   simba.Outcome
	err   error
}

// ask makes the request that is due: GUARD by an owner, ACQUIRE by all others. A request that is
// not answered in time, or when it is to stop, is left alone; what it says of the
// tenure is heard if it comes before the lease is over.
func (p *pursuit) ask() (out simba.Outcome, sent instant, err error) {
	limit, life, token := p.c.timeout, p.c.timeout, uint64(0)
	if p.own != nil {
		life, token = p.own.left(), p.own.token
		limit = max(min(limit, life/2), time.Millisecond)
	}
	enough := time.NewTimer(limit)
	defer enough.Stop()
	slots := p.slots
	n := uint64(0) // not sent yet
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
			return a.out, a.sent, a.err
		case <-enough.C:
			p.uncertain = p.uncertain || token == 0
			return out, sent, errUnanswered
		case <-p.quit:
			p.uncertain = p.uncertain || token == 0
			return out, sent, ErrReleased
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
			a.out, a.err = p.c.guard(ctx, p.terms, token)
		} else {
			a.out, a.err = p.c.acquire(ctx, p.terms, p.noQueue)
		}
		select {
		case p.answers <- a:
		default: // nobody waits for so many
		}
		<-p.slots
	})
	return a.n
}

// fail judges a request that failed.
func (p *pursuit) fail(err error) bool {
	final, longest := refused(err), min(p.ttl, retryPauseMax)
	if misconfigured(err) {
		longest = mendPauseMax
	}
	switch {
	case p.failing && (p.refusing || !final): // it was logged
	case final:
		p.c.log.Error("the server refuses a contender", "mutex", p.mutex, "contender", p.id, "err", err)
	default:
		p.c.log.Warn("cannot ask the server", "mutex", p.mutex, "contender", p.id, "err", err)
	}
	p.failing, p.refusing = true, p.refusing || final
	if p.failed != nil {
		p.failed(err, final)
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
	if errors.Is(err, errUnanswered) || errors.Is(err, context.DeadlineExceeded) {
		d = retryPause // it has cost time enough
	} else {
		p.pause = min(2*p.pause, longest)
	}
	return p.sleep(d/2+rand.N(d), p.poke)
}

// hold is after the mutex was acquired or renewed by a request that was sent at from.
func (p *pursuit) hold(out simba.Outcome, from instant) bool {
	if p.own == nil && out.Token == p.over { // by the server's clock it was not over yet; but it was told to be
		return p.drop(out.Token)
	}
	lease := min(p.lease(), out.Transition)
	o := p.own
	if o == nil {
		o = newOwnership(out.Token, from, lease)
	} else {
		o.renew(from, lease)
	}
	if o.left() <= 0 { // the answer took longer than the lease
		if p.own != nil {
			return p.lose(ErrLost, Owner{}) && p.afterwards()
		}
		p.uncertain = true
		return p.fail(errUnanswered)
	}
	p.pause, p.uncertain = retryPause, false
	before := p.last
	p.last = Owner{ID: p.id, Token: out.Token, TTLAt: from.at.Add(min(p.ttl, out.TTL)), TransitionAt: from.at.Add(lease)}
	if p.own == nil {
		p.own = o
		p.owning.Store(true)
		p.acquired(o, State{p.mutex, before, p.last})
	} else {
		p.listen() // who holds it for so long wants to know at once if it is broken
		if p.renewed != nil {
			p.renewed()
		}
	}
	if p.fixed {
		return p.endure(o)
	}
	return p.sleep(renewIn(p.ttl, p.transition)-now().since(from), p.poke)
}

// drop releases a tenure that is over for us, so that none is told twice; then it is asked for anew.
func (p *pursuit) drop(token uint64) bool {
	ctx, cancel := context.WithTimeout(context.Background(), p.c.timeout)
	defer cancel()
	if _, err := p.c.release(ctx, p.terms, token); err != nil {
		return p.fail(err)
	}
	return !p.quitting()
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

// renewIn is when an owner renews its lease, from when it asked for it: at the end of its TTL window,
// as Simba does, but when a third of the lease is left at the latest, so that a slow or lost
// answer does not lose it.
func renewIn(ttl, transition time.Duration) time.Duration {
	return min(ttl, (ttl+transition)*2/3)
}

// wait waits until another's lease, or turn, is over, or a notice comes.
func (p *pursuit) wait(out simba.Outcome) bool {
	p.pause = retryPause
	p.last = ownerOf(out, time.Now())
	if p.waiting != nil {
		p.waiting(p.last)
	}
	if p.once {
		return false
	}
	if p.every != 0 {
		return p.sleep(p.every, p.poke)
	}
	p.listen()
	return p.sleep(contendIn(out.TTL, out.Transition), p.poke)
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
	o.end(cause)
	p.own, p.over = nil, o.token
	p.owning.Store(false)
	state := State{p.mutex, p.last, after}
	p.last = after
	if errors.Is(cause, ErrLost) {
		p.c.log.Warn("lost a mutex", "mutex", p.mutex, "contender", p.id, "token", o.token, "owner", after.ID)
	}
	p.lost(o, state)
	return !p.once
}

// afterwards waits for the callbacks; false means that it is to stop.
func (p *pursuit) afterwards() bool {
	if p.settled == nil {
		return !p.quitting()
	}
	select {
	case <-p.settled():
		return true
	case <-p.quit:
		return false
	}
}

// listen begins to hear notices.
func (p *pursuit) listen() {
	if p.ear == nil {
		p.ear = p.c.radio.listen(p.heard, simba.ContenderChannel(p.mutex, p.id), simba.MutexChannel(p.mutex))
	}
}

// heard is called by the radio. A contender that waits hears of its turn on its own channel, and on the
// mutex' that it is free and nobody is next. An owner must hear of another there, and of its own
// end, but not of the one before. After a break anything may have happened.
func (p *pursuit) heard(n notice) {
	turn := n.channel == simba.ContenderChannel(p.mutex, p.id)
	free := !turn && strings.HasPrefix(n.payload, simba.ReleasedNotice(""))
	news := n.fresh || turn || free
	if p.owning.Load() {
		rival := !turn && !n.fresh && !free && n.payload != simba.AcquiredNotice(p.id)
		over := free && n.payload == simba.ReleasedNotice(p.id)
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
	case <-p.quit:
		return false
	}
	return !p.quitting()
}

func (p *pursuit) quitting() bool {
	select {
	case <-p.quit:
		return true
	default:
		return false
	}
}

// giveUp ends it: nothing of it is left, here or at the server, unless the server cannot be
// asked until what may be left there has lapsed.
func (p *pursuit) giveUp() {
	p.stop() // of what ends by itself
	token := uint64(0)
	if p.own != nil {
		token = p.own.token
		p.lose(ErrReleased, Owner{})
	}
	if p.ear != nil {
		p.c.radio.leave(p.ear)
	}
	if p.settled != nil {
		<-p.settled()
	}
	if p.releasing != nil {
		p.releasing()
	}
	p.endGuards()
	p.strays.Wait() // none may come after the release
	if !p.present {
		return
	}
	if p.uncertain {
		token = 0
	}
	asked := false
	for {
		ctx, cancel := context.WithTimeout(context.Background(), p.c.timeout)
		released, err := p.c.release(ctx, p.terms, token)
		cancel()
		switch {
		case err == nil:
			if token != 0 && !released && !asked {
				p.err = ErrLost
			}
			return
		case refused(err), errors.Is(err, redis.ErrClosed), now().since(p.sent) > p.lease():
			p.err = err
			return
		}
		asked = true
		p.pause = min(2*p.pause, time.Second)
		time.Sleep(p.pause / 2)
	}
}
