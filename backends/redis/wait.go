package redis

import (
	"context"
	"strconv"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// place is where a ticket stands in Redis. It travels with the ticket as its waiter.
type queueEntry struct {
	simba.Waiter
	ticket string // names the ticket among those of this server

	// Guarded by Backend.mu. A script that makes sure of the place must not run after
	// the one that ends it, so either waits for or leaves out the other.
	score     string        // its order in the queue, "" = not known
	ended     bool          // no longer to be made sure of
	restoring int           // how many looks that make sure of it are under way
	idle      chan struct{} // closed when none is any more; nil = nobody waits for that
	earlier   grant         // that of an earlier ticket of its contender; the zero value = none
}

func entryOf(t *proxy.Ticket) *queueEntry { return t.Request.Waiter.(*queueEntry) }

// delivery is a grant that a waiter of this server was handed.
type delivery struct {
	ticket string
	token  uint64
}

// ghost is a ticket whose wait has ended without Redis knowing it for sure.
type orphan struct {
	contender string
	ticket    string
	until     time.Time // when it can hold nothing any more
}

const (
	// checkAfter is when a grant to another server's waiter should be confirmed.
	checkAfter = 100 * time.Millisecond
	retryAfter = 300 * time.Millisecond // after a lost outcome
)

func (b *Backend) acquireWaiting(ctx context.Context, r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
	if b.tasks.ctx.Err() != nil {
		return simba.Outcome{}, nil, simba.ErrStopped
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	heard, err := b.subs.waitReachable(ctx, r.Mutex)
	if err != nil {
		return simba.Outcome{}, nil, b.unavailable(err)
	}
	t, p := b.enter(r)
	s, err := b.acquire(ctx, r, "wait", p.ticket)
	if err != nil {
		if !t.Withdraw() { // granted, by a message that was faster, or moved: End tells
			return simba.Outcome{Status: simba.StatusWaiting}, waitTicket{t, b}, nil
		}
		b.orphanTicket(t)
		b.mu.Lock()
		g := p.earlier
		b.mu.Unlock()
		if g.token != 0 {
			b.handOffSoon(r.Mutex, g)
		}
		return simba.Outcome{}, nil, err
	}
	out := s.result()
	if out.Status == simba.StatusWaiting {
		b.claim(p.ticket) // before it has a score: looks may have it granted again from then on
		b.mu.Lock()
		p.score, _ = s.extra.(string)
		b.mu.Unlock()
		b.subs.subscribeReleases(r.Mutex)
		if heard() {
			b.schedule.advance(r.Mutex, time.Now().Add(reconcileInterval))
		} else { // others may have found nobody listening here, and dropped it
			b.schedule.advance(r.Mutex, time.Now())
		}
		return out, waitTicket{t, b}, nil
	}
	t.Withdraw() // whatever else it was told of meanwhile: the answer is newer
	return out, nil, nil
}

// enter makes a ticket and its place.
func (b *Backend) enter(r simba.AcquireRequest) (*proxy.Ticket, *queueEntry) {
	b.mu.Lock()
	b.tickets++
	p := &queueEntry{Waiter: r.Waiter, ticket: strconv.FormatUint(b.tickets, 10)}
	b.mu.Unlock()
	r.Waiter = p
	return b.waiters.Enter(r), p
}

// end is suspend for good. On an error the ticket is forsaken.
func (b *Backend) end(ctx context.Context, t *proxy.Ticket) error {
	err := b.suspend(ctx, t)
	if err != nil {
		b.orphanTicket(t)
	}
	return err
}

// resume lets looks make sure of a ticket's place again.
func (b *Backend) resume(t *proxy.Ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	entryOf(t).ended = false
}

// suspend lets no more looks make sure of a ticket's place, and waits for those under
// way.
func (b *Backend) suspend(ctx context.Context, t *proxy.Ticket) error {
	p := entryOf(t)
	b.mu.Lock()
	p.ended = true
	if p.restoring == 0 {
		b.mu.Unlock()
		return nil
	}
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	idle := p.idle
	b.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return b.unavailable(ctx.Err())
	}
}

// dismiss ends the wait of a ticket that has lost its place to its contender's other
// request: Granted finds out to which.
func (b *Backend) endReplaced(mutex, contender, ticket string) {
	b.endWait(mutex, contender, ticket, proxy.Grant{Confirm: true})
}

// wake ends the wait of a ticket, if that still waits.
func (b *Backend) endWait(mutex, contender, ticket string, with proxy.Grant) {
	if t := b.waiters.Find(mutex, contender); t != nil && entryOf(t).ticket == ticket {
		t.Grant(with)
	}
}

// confirm makes sure of a grant that a message told of, and tells Redis that it is
// known here. In a cluster the message comes, too, if the script that sent it found
// nobody listening at its own node, and granted the mutex to the next.
func (b *Backend) confirmGrant(ctx context.Context, mutex string, g grant) {
	s, err := b.ask(ctx, mutex, confirmScript, g.contender, tokenText(g.token), g.ticket, "heard")
	switch {
	case err != nil:
		b.schedule.advance(mutex, time.Now().Add(retryAfter)) // a look finds it again
	case s.owner == g.contender && s.token == g.token:
		// If it was known here before, then whoever knew saw to it.
		b.deliver(mutex, g, proxy.Grant{Token: g.token, Since: s.began()}, s.extra == int64(1))
	default:
		b.schedule.advance(mutex, time.Now())
	}
}

// deliver hands a grant to its waiter. If nobody waits, a grant that is news is passed
// on.
func (b *Backend) deliver(mutex string, g grant, with proxy.Grant, news bool) {
	// Two replies may tell of one grant, and a cluster's nodes repeat each other's
	// messages. Only who is first may pass it on.
	with.Ticket = g.ticket
	b.mu.Lock()
	first := b.delivered.add(delivery{g.ticket, g.token})
	b.mu.Unlock()
	if !first {
		return
	}
	for t := b.waiters.Find(mutex, g.contender); t != nil; t = b.waiters.Find(mutex, g.contender) {
		if entryOf(t).ticket != g.ticket {
			b.noteEarlierGrant(mutex, t, g)
			return
		}
		if t.Grant(with) {
			return
		}
	}
	if news && b.mustHandOff(g) {
		b.handOffSoon(mutex, g)
	}
}

// supersede takes in a grant for an earlier ticket of a waiter's contender. It may be long over. If it is not, the request of
// the later ticket renews it; or a look finds it, where that was overtaken by the earlier one's.
func (b *Backend) noteEarlierGrant(mutex string, later *proxy.Ticket, g grant) {
	b.mu.Lock()
	entryOf(later).earlier = g
	b.mu.Unlock()
	b.schedule.advance(mutex, time.Now())
}

// store is a Backend as its Waiters see it.
type store struct{ *Backend }

// Granted implements proxy.Store.
func (b store) Granted(t *proxy.Ticket, g proxy.Grant) (simba.Outcome, error) {
	r := t.Request
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	if err := b.end(ctx, t); err != nil {
		return simba.Outcome{}, err
	}
	gone := time.Since(g.Since)
	// Redis rounds the beginning of a lease down to a millisecond: the last one is in doubt.
	if !g.Confirm && g.Ticket == entryOf(t).ticket && left(r.TTL+r.Transition-gone) > 0 {
		return simba.Outcome{
			Status: simba.StatusAcquired, Owner: r.Contender, Token: g.Token,
			TTL: left(r.TTL - gone), Transition: left(r.TTL + r.Transition - gone),
		}, nil
	}
	s, err := b.ask(ctx, r.Mutex, confirmScript, r.Contender, tokenText(g.Token), entryOf(t).ticket, "told")
	if err != nil {
		b.orphanTicket(t)
		return simba.Outcome{}, err
	}
	if s.status == "confirmed" { // it owns that tenure, or one that this ticket was granted after it
		return s.outcome(simba.StatusAcquired), nil
	}
	if s.position > 0 { // another server's waiter of the same contender has the place, or it polls now
		return s.outcome(simba.StatusQueued), nil
	}
	return s.outcome(simba.StatusTimeout), nil
}

// Reacquire implements proxy.Store.
func (b store) Reacquire(t *proxy.Ticket) (simba.Outcome, simba.Ticket, error) {
	r := t.Request
	r.Waiter = entryOf(t).Waiter
	return b.Acquire(context.Background(), r)
}

// Replaced implements proxy.Store.
func (b store) Replaced(t *proxy.Ticket) (simba.Outcome, error) {
	// A guard of no tenure changes nothing and tells the position.
	s, err := b.runLast(t, guardScript, int64(1), int64(0), "-")
	if err != nil {
		return simba.Outcome{}, err
	}
	return s.outcome(simba.StatusQueued), nil
}

// Leave implements proxy.Store.
func (b store) Leave(t *proxy.Ticket, why simba.EndReason) (simba.Outcome, error) {
	word := "left"
	switch why {
	case simba.EndTimeout:
		word = "timeout"
	case simba.EndGone:
		word = "gone"
	}
	s, err := b.runLast(t, leaveScript, entryOf(t).ticket, word)
	if err != nil {
		return simba.Outcome{}, err
	}
	return s.result(), nil
}

// HandOff implements proxy.Store.
func (b store) HandOff(t *proxy.Ticket, g proxy.Grant) error {
	_, err := b.runLast(t, handOffScript, tokenText(g.Token), entryOf(t).ticket)
	return err
}

// finally runs the last script of a ticket, whose arguments begin with its contender.
func (b *Backend) runLast(t *proxy.Ticket, s *script, args ...any) (*state, error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	if err := b.end(ctx, t); err != nil {
		return nil, err
	}
	st, err := b.ask(ctx, t.Request.Mutex, s, append([]any{t.Request.Contender}, args...)...)
	if err != nil {
		b.orphanTicket(t)
	}
	return st, err
}

// forsake goes on ending a wait after Redis could not be told.
func (b *Backend) orphanTicket(t *proxy.Ticket) {
	b.addOrphan(t.Request.Mutex, orphan{t.Request.Contender, entryOf(t).ticket,
		time.Now().Add(t.Request.TTL + t.Request.Transition + time.Minute)})
}

func (b *Backend) addOrphan(mutex string, g orphan) {
	b.mu.Lock()
	b.orphans[mutex] = append(b.orphans[mutex], g)
	b.mu.Unlock()
	b.schedule.advance(mutex, time.Now().Add(retryAfter))
}

// generations remember what was added lately: until turn was called twice.
type recentSet[K comparable] struct{ young, old map[K]struct{} }

// add reports whether k is new.
func (g *recentSet[K]) add(k K) bool {
	_, young := g.young[k]
	_, old := g.old[k]
	if g.young == nil {
		g.young = make(map[K]struct{})
	}
	g.young[k] = struct{}{}
	return !young && !old
}

func (g *recentSet[K]) has(k K) bool {
	_, young := g.young[k]
	_, old := g.old[k]
	return young || old
}

func (g *recentSet[K]) turn() { g.young, g.old = nil, g.young }
