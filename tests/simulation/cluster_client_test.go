package simulation

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/simba-resp/simba-resp"
)

func mutexName(i int) string  { return fmt.Sprint("m", i+1) }
func clientName(i int) string { return fmt.Sprint("c", i) }

// simClient is a contender. Its requests for a mutex have the same windows, so that a request that
// arrives late never shortens a lease.
type simClient struct {
	w       *clusterWorld
	index   int // from 1
	name    string
	rng     *rand.Rand
	ttl     map[*clusterMutex]time.Duration
	trans   map[*clusterMutex]time.Duration
	mine    map[*clusterMutex]*tenancy
	at      *term // to which it is connected
	session *simSession
}

// simSession is the connection to which leases are bound.
type simSession struct {
	term *term
	id   uint64
}

func (w *clusterWorld) newClient(index int, rng *rand.Rand) *simClient {
	c := &simClient{
		w: w, index: index, name: clientName(index), rng: rng, mine: map[*clusterMutex]*tenancy{},
		ttl: map[*clusterMutex]time.Duration{}, trans: map[*clusterMutex]time.Duration{},
	}
	for i := range w.mutexes {
		mx := w.mutexesByName[mutexName(i)]
		c.ttl[mx] = time.Duration(500+rng.IntN(pick(rng, 2000, 10_000, 20_000)))*time.Millisecond + time.Duration(index)
		c.trans[mx] = pick(rng, 0, 0, time.Second, 5*time.Second)
	}
	return c
}

func (c *simClient) sleep(d time.Duration) { time.Sleep(time.Duration(c.rng.Int64N(int64(d)))) }

// live sends requests until a time.
func (c *simClient) live(until time.Duration) {
	for c.w.now() < until && !c.w.broken() {
		pause := pick(c.rng, 10*time.Millisecond, 300*time.Millisecond, 2*time.Second)
		if len(c.w.leaders()) > 1 { // one of them does not know yet that it leads no more
			c.w.count("two leaders")
			pause = 50 * time.Millisecond
		}
		c.sleep(pause)
		if c.connect() {
			c.act()
		}
	}
	c.disconnect()
}

// connect finds a leader.
func (c *simClient) connect() bool {
	list := c.w.leaders()
	if len(list) == 0 {
		return false
	}
	t := list[c.rng.IntN(len(list))]
	if t != c.at {
		c.disconnect()
		c.at = t
		c.session = &simSession{t, t.sessions.Add(1)}
	}
	return true
}

// disconnect ends the session, and with it the leases that are bound to it.
func (c *simClient) disconnect() {
	s := c.session
	if s == nil {
		return
	}
	c.at, c.session = nil, nil
	for i := range c.w.mutexes {
		mx := c.w.mutexesByName[mutexName(i)]
		t := c.mine[mx]
		if t == nil || t.session != s {
			continue
		}
		select {
		case <-s.term.done: // the server has ended the connection
			continue
		default:
		}
		c.w.mu.Lock()
		t.released = true
		c.w.mu.Unlock()
		delete(c.mine, mx)
		c.w.calls.Go(func() {
			if s.term.run.awaitThaw() {
				_, seq, err := s.term.engine.Release(context.Background(), simba.ReleaseRequest{Mutex: mx.name, Contender: c.name, Session: s.id})
				if err == nil {
					_ = s.term.engine.Commit(seq) // nobody waits for it
				}
			}
		})
	}
}

// settledSeq is the Seq of a reply that needs no commit.
const settledSeq simba.Seq = math.MaxUint64

// seqOf returns the Seq that a reply shows, as the server sees it.
func seqOf(o simba.Outcome) simba.Seq {
	if o.Settled {
		return settledSeq
	}
	return o.Seq
}

// call runs a request, and returns whether the reply arrives in time. do returns the Seq that the
// reply shows.
func (c *simClient) call(t *term, do func() (simba.Seq, error)) bool {
	done := make(chan bool, 1)
	c.w.calls.Go(func() {
		ok := t.run.awaitThaw()
		if ok {
			seq, err := do()
			ok = err == nil && (seq == settledSeq || t.engine.Commit(seq) == nil) && t.run.awaitThaw()
		}
		done <- ok
	})
	timer := time.NewTimer(time.Second + time.Duration(c.rng.Int64N(int64(8*time.Second))))
	defer timer.Stop()
	replied := false
	select {
	case replied = <-done:
	case <-timer.C:
	}
	if !replied { // the request may have been done or not
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		c.w.report.counts["no reply"]++
		c.w.logLocked(c.index, "← nothing")
	}
	return replied
}

func (c *simClient) ask(mx *clusterMutex, what string) question {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.logLocked(c.index, "→ %s %s", what, mx.name)
	return c.w.askLocked(mx, c.name, what)
}

// reply runs a function of the judge.
func (c *simClient) reply(what string, judge func()) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if len(c.w.report.violations) > 0 {
		return
	}
	c.w.report.counts[what]++
	c.w.logLocked(c.index, "← %s", what)
	judge()
}

func (c *simClient) act() {
	mx := c.w.mutexesByName[mutexName(c.rng.IntN(c.w.mutexes))]
	switch p := c.rng.IntN(100); {
	case p < 30:
		c.acquire(mx, false, c.rng.IntN(3) == 0)
	case p < 45:
		c.acquire(mx, true, c.rng.IntN(3) == 0)
	case p < 60 && c.mine[mx] != nil:
		c.guard(mx)
	case p < 75 && c.mine[mx] != nil:
		c.release(mx)
	case p < 85:
		c.check(mx)
	case p < 98:
		c.owner(mx)
	default:
		c.disconnect()
	}
}

// renews notes that a request may set the windows of the client's lease anew.
func (c *simClient) renewsLocked(mx *clusterMutex) {
	if t := c.mine[mx]; t != nil {
		t.end = min(t.end, c.w.now()+c.ttl[mx]+c.trans[mx])
	}
}

func (c *simClient) acquire(mx *clusterMutex, wait, session bool) {
	t := c.at
	r := simba.AcquireRequest{Mutex: mx.name, Contender: c.name, TTL: c.ttl[mx], Transition: c.trans[mx], NoQueue: !wait}
	if session {
		r.Session = c.session.id
	}
	w := make(waker, 1)
	what := "acquire"
	if wait {
		r.Waiter, what = w, "acquire wait"
	}
	q := c.ask(mx, what)
	c.w.mu.Lock()
	c.renewsLocked(mx)
	if old := c.mine[mx]; old != nil && session {
		old.session = c.session
	}
	c.w.mu.Unlock()
	var out simba.Outcome
	var ticket simba.Ticket
	if !c.call(t, func() (simba.Seq, error) {
		o, k, err := t.engine.Acquire(context.Background(), r)
		out, ticket = o, k
		return seqOf(o), err
	}) {
		return
	}
	limit := time.Duration(c.rng.Int64N(int64(10 * time.Second)))
	for out.Status == simba.StatusWaiting {
		why := simba.EndWoken
		timer := time.NewTimer(limit)
		select {
		case <-w:
		case <-timer.C:
			why = simba.EndTimeout
			if c.rng.IntN(3) == 0 {
				why = simba.EndGone
			}
		case <-t.done:
			timer.Stop()
			return
		case <-t.run.over:
			timer.Stop()
			return
		}
		timer.Stop()
		greatest := q.greatest // the grant may be told before its reply
		q = c.ask(mx, "end of wait")
		q.greatest = greatest
		if !c.call(t, func() (simba.Seq, error) {
			o, err := ticket.End(why)
			out = o
			return seqOf(o), err
		}) || why == simba.EndGone {
			return
		}
	}
	c.reply(what+" "+out.Status.String(), func() {
		mine := c.mine[mx]
		switch out.Status {
		case simba.StatusAcquired, simba.StatusRenewed:
			held := c.w.grantedLocked(&q, out, mine, c.ttl[mx]+c.trans[mx])
			if delete(c.mine, mx); held != nil {
				held.session = nil
				if session {
					held.session = &simSession{t, r.Session}
				}
				c.mine[mx] = held
			}
		default:
			c.notMineLocked(&q, mine)
			c.w.shownLocked(&q, out.Owner, out.Token, out.Transition)
		}
	})
}

// notMineLocked judges a reply that says that the client does not own a mutex.
func (c *simClient) notMineLocked(q *question, mine *tenancy) {
	if mine == nil {
		return
	}
	delete(c.mine, q.mx)
	if t := c.w.bindingLocked(q); t == mine {
		c.w.violateLocked(ruleKept, "%v: %s does not own the mutex, but was told that it does with the token %d until %v", q, c.name, t.token, t.end)
	}
}

func (c *simClient) guard(mx *clusterMutex) {
	t, mine := c.at, c.mine[mx]
	q := c.ask(mx, "guard")
	c.w.mu.Lock()
	c.renewsLocked(mx)
	c.w.mu.Unlock()
	var out simba.Outcome
	if !c.call(t, func() (simba.Seq, error) {
		o, err := t.engine.Guard(context.Background(), simba.GuardRequest{Mutex: mx.name, Contender: c.name, TTL: c.ttl[mx], Transition: c.trans[mx], Token: mine.token})
		out = o
		return o.Seq, err
	}) {
		return
	}
	c.reply("guard "+out.Status.String(), func() {
		if out.Status == simba.StatusRenewed {
			if held := c.w.grantedLocked(&q, out, mine, c.ttl[mx]+c.trans[mx]); held == nil {
				delete(c.mine, mx)
			} else {
				held.session = mine.session
				c.mine[mx] = held
			}
			return
		}
		c.notMineLocked(&q, mine)
		c.w.shownLocked(&q, out.Owner, out.Token, out.Transition)
	})
}

func (c *simClient) release(mx *clusterMutex) {
	t, mine := c.at, c.mine[mx]
	q := c.ask(mx, "release")
	owned := false
	c.w.mu.Lock()
	mine.released = true
	c.w.mu.Unlock()
	delete(c.mine, mx)
	if !c.call(t, func() (simba.Seq, error) {
		is, seq, err := t.engine.Release(context.Background(), simba.ReleaseRequest{Mutex: mx.name, Contender: c.name, Token: mine.token})
		owned = is
		return seq, err
	}) {
		return
	}
	c.reply(fmt.Sprintf("release %t", owned), func() {
		if !owned && q.holding == mine && c.w.now() < mine.end {
			c.w.violateLocked(ruleKept, "%v: %s does not own the mutex, but was told that it does with the token %d until %v", q, c.name, mine.token, mine.end)
		}
		c.w.overLocked(mx, mine.token, q.String())
	})
}

func (c *simClient) check(mx *clusterMutex) {
	t := c.at
	q := c.ask(mx, "check")
	token := q.told
	if c.rng.IntN(4) == 0 {
		token = q.over
	}
	if token == 0 {
		return
	}
	is := false
	if !c.call(t, func() (simba.Seq, error) {
		ok, seq, err := t.engine.Check(context.Background(), mx.name, token)
		is = ok
		return seq, err
	}) {
		return
	}
	c.reply(fmt.Sprintf("check %t", is), func() {
		switch held := c.w.bindingLocked(&q); {
		case is && token <= q.over:
			c.w.violateLocked(ruleStale, "%v: the token %d is that of the owner, but %s before that all up to %d are over", q, token, q.overBy, q.over)
		case held != nil && is != (token == held.token):
			c.w.violateLocked(ruleKept, "%v: that %d is the token of the owner is %t, but %s was told that it owns the mutex with %d until %v", q, token, is, held.owner, held.token, held.end)
		case is:
			c.w.overLocked(mx, token-1, q.String())
		case token == q.told:
			c.w.overLocked(mx, token, q.String())
		}
	})
}

func (c *simClient) owner(mx *clusterMutex) {
	t := c.at
	q := c.ask(mx, "owner")
	var is simba.Tenure
	if !c.call(t, func() (simba.Seq, error) {
		o, seq, err := t.engine.Owner(context.Background(), mx.name)
		is = o
		return seq, err
	}) {
		return
	}
	what := "owner none"
	if !is.IsFree() {
		what = "owner " + is.Owner
	}
	c.reply("owner", func() {
		c.w.logLocked(c.index, "  %s", what)
		c.w.shownLocked(&q, is.Owner, is.Token, is.Transition)
	})
}

// waker is the Waiter of a blocked request.
type waker chan struct{}

func (w waker) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}
