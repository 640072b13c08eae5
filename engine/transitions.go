package engine

import (
	"cmp"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/bugs"
)

// reasonHandoff is the reason of a tenure that a blocked waiter was granted.
const reasonHandoff = "handoff"

// The transitions: the only code that changes a mutex. Each begins with advance,
// so that what the clock has brought about is true before anything else is.

// advance lets time do its work: the lease ends, a turn ends, waiters lapse.
func (m *mutex) advance(s *step) {
	if m.owned() && (m.end() <= s.now || bugs.On(bugs.EarlyExpiry) && m.ttlEnd() <= s.now) {
		s.forced = true
		m.endTenure(s, simba.EventExpired, "")
	}
	c := m.contention
	if c == nil {
		return
	}
	if bugs.On(bugs.ReservationNeverEnds) && c.until <= s.now {
		c.until = s.now.Add(time.Second)
	}
	if c.reserved != nil && c.until <= s.now {
		m.endReservation(s)
	}
	m.endRecovery(s)
	m.handOff(s)
	for _, e := range c.lapsed(s.now) {
		s.event(simba.EventLeft, m, e.contender, 0, "lapsed")
	}
}

// endRecovery grants a recovered owner, now that the quiet time is over, the renewal
// that it asked for by ACQUIRE and had to queue for.
func (m *mutex) endRecovery(s *step) {
	if !m.owned() || m.token > s.former || s.now < s.recoverUntil {
		return
	}
	c := m.contention
	e := c.find(m.owner())
	if e == nil {
		return
	}
	if t := m.dequeueGranted(s, e); t != nil {
		c.unconfirmed = t
		m.renew(s, e.ttl, e.transition)
		m.bind(e.session)
	}
}

// award takes the entry of the owner out of the queue. If a connection waits for it, that is
// told of the tenure.
func (m *mutex) dequeueGranted(s *step, e *entry) *ticket {
	c := m.contention
	t := s.wake(c.setTicket(e, nil))
	if t != nil {
		t.token, t.from, t.after = m.token, e, unrecorded
	}
	c.remove(e)
	return t
}

// acquire grants, renews or queues. The ticket of r.Waiter is t.
//
// In the quiet time it does not even renew: a recovered owner may have released
// the mutex to another whose tenure was lost with that release, and may now ask
// for a new one. Who still believes in its tenure guards it, or takes its turn
// when the quiet is over.
func (m *mutex) acquire(s *step, r simba.AcquireRequest, t *ticket) simba.Status {
	m.advance(s)
	switch {
	case m.owned() && m.owner() == r.Contender && s.now >= s.recoverUntil:
		if bugs.On(bugs.DoubleGrantOnRetry) {
			m.grant(s, r.Contender, r.TTL, r.Transition, r.Session, "")
			return simba.StatusAcquired
		}
		m.renew(s, r.TTL, r.Transition)
		m.bind(r.Session)
		m.confirm()
		return simba.StatusRenewed
	case m.open(s, r.Contender):
		m.grant(s, r.Contender, r.TTL, r.Transition, r.Session, "")
		return simba.StatusAcquired
	case r.NoQueue:
		return simba.StatusBusy
	}
	m.enqueue(s, r, t)
	if t != nil {
		return simba.StatusWaiting
	}
	return simba.StatusQueued
}

// grows reports whether an acquire would take memory: for a new tenure, or for a place in the queue.
// The tenure of one who has waited takes none, it comes in place of the place.
func (m *mutex) grows(s *step, r simba.AcquireRequest) bool {
	m.advance(s)
	c := m.contention
	switch {
	case m.owned() && m.owner() == r.Contender:
		return false
	case c != nil && (c.find(r.Contender) != nil || c.reserved != nil && c.reserved.contender == r.Contender):
		return false
	}
	return !r.NoQueue || m.open(s, r.Contender)
}

// guard renews for the owner, and never begins or revives a tenure.
func (m *mutex) guard(s *step, r simba.GuardRequest) simba.Status {
	m.advance(s)
	if bugs.On(bugs.GuardRevives) && m.open(s, r.Contender) {
		m.grant(s, r.Contender, r.TTL, r.Transition, 0, "")
		return simba.StatusRenewed
	}
	if !m.owned() || m.owner() != r.Contender || r.Token != 0 && r.Token != m.token {
		return simba.StatusLost
	}
	if bugs.On(bugs.RenewalKeepsWindows) {
		r.TTL, r.Transition = m.ttlLen(), m.end().Sub(m.ttlEnd())
	}
	m.renew(s, r.TTL, r.Transition)
	m.confirm()
	return simba.StatusRenewed
}

// release ends the contender's tenure and takes it out of the queue. A request
// for one tenure or one session leaves the queue alone: it may be late, and the
// contender may wait for its next tenure by now.
func (m *mutex) release(s *step, r simba.ReleaseRequest) bool {
	m.advance(s)
	owned := m.owned() && m.owner() == r.Contender &&
		(r.Token == 0 || r.Token == m.token || bugs.On(bugs.ReleaseWithoutTokenCheck)) &&
		(r.Session == 0 || m.boundTo(r.Session))
	if owned {
		// A session that ends is not its owner's word: it may believe in its lease.
		s.forced = s.forced || r.Session != 0
		m.endTenure(s, simba.EventReleased, r.Reason)
	}
	if c := m.contention; c != nil && r.Token == 0 && r.Session == 0 {
		if e := c.find(r.Contender); e != nil {
			m.leave(s, e, "left")
		} else if c.reserved != nil && c.reserved.contender == r.Contender { // a script took it out of the queue
			m.endReservation(s)
		}
	}
	m.handOff(s)
	return owned
}

// breakTenure ends the tenure whoever owns it.
func (m *mutex) breakTenure(s *step, reason string) bool {
	m.advance(s)
	if !m.owned() {
		return false
	}
	s.forced = true
	m.endTenure(s, simba.EventBroken, reason)
	m.handOff(s)
	return true
}

// reach takes note of whether a polling waiter can be told now.
func (m *mutex) resubscribe(s *step, contender string) {
	m.advance(s)
	c := m.contention
	if c == nil {
		return
	}
	if e := c.find(contender); e != nil && e.ticket == nil {
		m.offerAgain(s, e)
	}
}

// again tells a polling waiter anew, if it listens: what it was told may have gone
// to a subscription that is no more.
func (m *mutex) offerAgain(s *step, e *entry) {
	c := m.contention
	c.clearOffered(e)
	c.setReady(e, s.subscribed(m.name(), e.contender))
	if c.reserved == e {
		m.endReservation(s)
	}
	m.handOff(s)
}

// missReservation ends the turn of a polling waiter whom the notice did not reach.
func (m *mutex) missReservation(s *step, contender string) {
	m.advance(s)
	c := m.contention
	if c == nil || m.owned() {
		return
	}
	e := c.find(contender)
	if e != nil && e.ticket == nil && c.wasOffered(e) {
		m.offerAgain(s, e)
	}
}

// endWait ends a blocked wait and says what came of it. Who was woken waits on if there is
// nothing to tell: its tenure was over before, or it may not be told yet.
func (m *mutex) endWait(s *step, t *ticket, why simba.EndReason) simba.Status {
	m.advance(s) // it may be granted in this very step
	e := t.entry
	if why == simba.EndWoken && (e != nil || t.owns(m) && !t.committed()) {
		if e != nil && !e.ready {
			m.contention.readyAll()
			m.handOff(s)
		}
		t.absent = false
		return simba.StatusWaiting
	}
	t.ended, t.from, t.waiter = true, nil, nil // the mutex may remember the ticket for as long as the lease runs
	switch {
	case t.token != 0:
		if why == simba.EndGone {
			m.abandon(s, t)
		}
		switch {
		case !t.owns(m):
		case t.token <= s.former:
			return simba.StatusRenewed // by endRecovery
		default:
			return simba.StatusAcquired
		}
	case t.moved:
		return simba.StatusQueued
	case e == nil: // its contender took itself out of the queue
	case why == simba.EndGone && bugs.On(bugs.GrantToTheDead):
		return simba.StatusQueued
	case why == simba.EndGone:
		c := m.contention
		c.setTicket(e, nil)
		if !bugs.On(bugs.QueueLeak) {
			c.poll(e, m.lapse(s))
		}
		c.setReady(e, s.subscribed(m.name(), t.contender))
		m.handOff(s) // one that waited on may not have had its turn
		return simba.StatusQueued
	case why == simba.EndTimeout:
		m.contention.setTicket(e, nil)
		m.leave(s, e, "timeout")
	default:
		m.contention.setTicket(e, nil)
		m.leave(s, e, "left")
	}
	return simba.StatusTimeout
}

// abandon passes on what was granted to a waiter that died before it was told,
// as if it had never been chosen. Its contender may have come back by another
// connection and learned of its tenure there: then it keeps it.
func (m *mutex) abandon(s *step, t *ticket) {
	m.advance(s)
	if t.token <= s.former || m.contention == nil || m.contention.unconfirmed != t || bugs.On(bugs.DeadKeepsGrant) {
		return
	}
	s.forced = true // a crash must not bring it back: nobody would release it
	m.endTenure(s, simba.EventReleased, "waiter gone")
	m.handOff(s)
}

// told notes that the owner knows of its tenure.
func (m *mutex) confirm() {
	if m.contention != nil {
		m.contention.unconfirmed = nil
	}
}

// open reports whether contender may have the mutex now.
func (m *mutex) open(s *step, contender string) bool {
	if m.owned() || s.now < s.recoverUntil && !bugs.On(bugs.GrantInQuietTime) {
		return false
	}
	c := m.contention
	return c == nil || c.reserved == nil || c.reserved.contender == contender
}

// grant begins a tenure. If the contender waited, it waits no longer.
func (m *mutex) grant(s *step, contender string, ttl, transition time.Duration, session uint64, reason string) {
	m.token = s.nextToken()
	m.setOwner(contender)
	if c := m.contention; c != nil {
		c.reserved = nil
		if e := c.find(contender); e != nil {
			if t := m.dequeueGranted(s, e); reason == reasonHandoff {
				c.unconfirmed = t // else its contender learns of it by the request that grants it
			}
		}
	}
	m.renew(s, ttl, transition)
	m.startedAt = s.wall
	m.bind(session)
	s.began = contender
	s.event(simba.EventAcquired, m, m.owner(), m.token, reason)
}

// renew begins both windows anew.
func (m *mutex) renew(s *step, ttl, transition time.Duration) {
	m.acquired, m.acquiredAt = s.now, s.wall
	m.setWindows(ttl, transition)
	s.changed, s.renewed = true, true
}

// vacate ends the tenure. The caller hands the mutex on.
func (m *mutex) endTenure(s *step, kind simba.EventKind, reason string) {
	owner := m.owner()
	s.event(kind, m, owner, m.token, reason)
	s.changed = true
	s.freed, s.last = kind != simba.EventExpired, owner // contenders know when a lease ends
	// The quiet time after a crash covers the leases of the run that crashed. So the
	// end of an older one must not be lost: it would come back and outlive it.
	s.forced = s.forced || m.token <= s.former
	m.setOwner("")
	m.token = 0
	if c := m.contention; c != nil {
		t := c.unconfirmed
		c.session, c.unconfirmed = 0, nil
		c.long = 0
		m.setFields(nil)
		c.last = owner
		c.newRound()
		if t != nil && !t.ended && kind != simba.EventReleased && !bugs.On(bugs.UntoldForgotten) {
			m.requeue(s, t)
		}
	}
}

// resume has one wait on whose tenure is over before it was told, in its old place. It has no turn before it could
// have been told of that tenure. If it could, or has had such a turn already, it has none before it shows up:
// else a connection that is stuck would have it own the mutex again and again.
func (m *mutex) requeue(s *step, t *ticket) {
	c, e := m.contention, t.from
	t.token, t.from = 0, nil
	if x := c.find(e.contender); x != nil { // a script has given it a place in this very step
		x.ttl, x.transition, x.session = e.ttl, e.transition, e.session
		c.setReady(x, false)
		e = x
	} else {
		c.add(e)
		s.event(simba.EventQueued, m, e.contender, 0, "")
	}
	c.setTicket(e, t)
	if !t.absent && !t.committed() {
		c.requeued = append(c.requeued, t)
	}
}

// handOff gives a free mutex to the first reachable waiter: grants it to a blocked
// one, tells a polling one and keeps it for its turn.
func (m *mutex) handOff(s *step) {
	c := m.contention
	if c == nil || m.owned() || c.reserved != nil || s.now < s.recoverUntil {
		return
	}
	c.readyRequeued()
	for e := c.next(); e != nil; e = c.next() {
		if e.ticket != nil && !bugs.On(bugs.LostWakeUp) {
			m.grant(s, e.contender, e.ttl, e.transition, e.session, reasonHandoff)
			return
		}
		if !s.subscribed(m.name(), e.contender) {
			c.setReady(e, false)
			continue
		}
		c.markOffered(e)
		s.reservations = append(s.reservations, reservation{m.name(), e.contender, c.last})
		if s.window > 0 {
			c.reserved, c.until = e, s.now.Add(s.window)
			e.lapse = max(e.lapse, c.until)
			return
		}
	}
}

// enqueue gives the contender a place, or keeps the one that it has.
func (m *mutex) enqueue(s *step, r simba.AcquireRequest, t *ticket) {
	c := m.contend()
	e := c.find(r.Contender)
	if e == nil {
		e = &entry{contender: r.Contender, order: s.newOrder(s.wall), since: s.now}
		c.add(e)
		s.event(simba.EventQueued, m, r.Contender, 0, "")
	}
	// A poll does not change what a blocked connection asked for and will be told.
	if (t != nil || e.ticket == nil) && !(bugs.On(bugs.FirstWindowsStay) && e.ttl != 0) {
		e.ttl, e.transition, e.session = r.TTL, r.Transition, r.Session
	}
	if t != nil {
		old := c.setTicket(e, t)
		if !bugs.On(bugs.OldWaitForgotten) {
			s.wake(old)
		}
		if old != nil {
			old.moved = true
		}
	}
	if e.ticket != nil {
		c.clearOffered(e) // it may have had its turn by a notice, and waits to be granted now
		c.setReady(e, true)
		return
	}
	c.poll(e, m.lapse(s))
	c.setReady(e, s.subscribed(m.name(), e.contender))
}

// leave takes a contender out of the queue without the mutex.
func (m *mutex) leave(s *step, e *entry, reason string) {
	c := m.contention
	s.wake(c.setTicket(e, nil))
	c.remove(e)
	s.event(simba.EventLeft, m, e.contender, 0, reason)
	if c.reserved == e {
		m.endReservation(s)
		m.handOff(s)
	}
}

// endReservation ends the turn of the polling waiter for whom the mutex is kept. The caller hands it on.
func (m *mutex) endReservation(s *step) {
	c := m.contention
	s.freed, s.last = true, cmp.Or(c.last, c.reserved.contender) // nobody had it since the start of the server
	c.reserved = nil
}

// longestLapse bounds for how long a waiter is remembered that nobody hears of: a lock key may
// have a lease without end.
const longestLapse = simba.MaxTTL + simba.MaxTransition

// lapse is until when a polling waiter that asks now is remembered: the grace
// begins when the lease that it sees ends, for that is when it will ask again.
func (m *mutex) lapse(s *step) simba.Instant {
	from := s.now
	if m.owned() {
		from = max(from, min(m.end(), from.Add(longestLapse)))
	}
	return from.Add(s.grace)
}

// bind ties the lease to a session, or unties it (0).
func (m *mutex) bind(session uint64) {
	if session != 0 || m.contention != nil {
		m.contend().session = session
	}
}

func (m *mutex) boundTo(session uint64) bool {
	return m.contention != nil && m.contention.session == session
}
