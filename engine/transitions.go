package engine

import (
	"cmp"
	"time"

	"github.com/simba-resp/simba-resp"
)

// reasonHandoff is the reason that the history gives for a grant to a blocked waiter.
const reasonHandoff = "handoff"

// reasonMissed is the reason that the history gives for a waiter that did not ask in its turn.
const reasonMissed = "missed its turn"

// The transitions are the only code that changes a mutex. The transition of a request begins with
// advance. The transitions in keys.go do not, because the commit of a transaction calls advance
// before them.

// advance brings the mutex to the present time. It ends an expired tenure and a reservation that is
// over, and calls endRecovery and handOff. A polling waiter that has not asked again in time
// lapses: advance removes it from the queue.
func (m *mutex) advance(s *step) {
	if m.owned() && m.end() <= s.now {
		s.forced = true
		m.endTenure(s, simba.EventExpired, "")
	}
	x := m.extra
	if x == nil {
		return
	}
	if x.outsider != 0 && s.now.Sub(x.outsider) >= outsiderCounts {
		x.outsider = 0
	}
	if e := x.reserved; e != nil && x.until <= s.now {
		m.endReservation(s)
		if e.kept && x.find(e.contender) == e {
			m.leave(s, e, reasonMissed)
		}
	}
	m.endRecovery(s)
	m.handOff(s)
	for _, e := range x.removeLapsed(s.now) {
		s.event(simba.EventLeft, m, e.contender, 0, "lapsed")
	}
}

// endRecovery has an effect when the recovery delay is over. It renews the lease of a recovered
// owner that sent ACQUIRE during the delay. Such an owner is in the queue.
func (m *mutex) endRecovery(s *step) {
	if !m.owned() || m.token > s.former || s.now < s.recoverUntil {
		return
	}
	x := m.extra
	e := x.find(m.owner())
	if e == nil {
		return
	}
	if t := m.dequeueGranted(s, e); t != nil {
		x.unconfirmed = t
		m.renew(s, e.ttl, e.transition)
		m.bind(e.session)
	}
}

// dequeueGranted removes the owner's entry e from the queue. If e has a ticket, dequeueGranted
// wakes the ticket's waiter and returns the ticket.
func (m *mutex) dequeueGranted(s *step, e *entry) *ticket {
	x := m.extra
	t := s.wake(x.setTicket(e, nil))
	if t != nil {
		t.state, t.token, t.from, t.after = granted, m.token, e, unrecorded
	}
	x.remove(e)
	return t
}

// acquire grants the mutex, renews the lease or queues the contender. t is the ticket of r.Waiter.
//
// During the recovery delay acquire does not even renew. The crash may have lost a release by the
// recovered owner, and a later tenure of another contender. So the request may be for a new tenure.
// An owner that relies on its old tenure uses guard, or waits until the delay is over.
func (m *mutex) acquire(s *step, r simba.AcquireRequest, t *ticket) simba.Status {
	m.advance(s)
	switch {
	case m.owned() && m.owner() == r.Contender && s.now >= s.recoverUntil:
		m.renew(s, r.TTL, r.Transition)
		m.bind(r.Session)
		m.confirm()
		return simba.StatusRenewed
	case m.mayTake(s, r.Contender):
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

// grows advances the mutex, and reports whether an acquire would take memory for a new tenure or a
// new queue entry. A grant to a waiter takes none, because the tenure replaces its queue entry.
func (m *mutex) grows(s *step, r simba.AcquireRequest) bool {
	m.advance(s)
	x := m.extra
	switch {
	case m.owned() && m.owner() == r.Contender:
		return false
	case x != nil && (x.find(r.Contender) != nil || x.reserved != nil && x.reserved.contender == r.Contender):
		return false
	}
	return !r.NoQueue || m.mayTake(s, r.Contender)
}

// guard renews the owner's lease. It never begins or revives a tenure.
func (m *mutex) guard(s *step, r simba.GuardRequest) simba.Status {
	m.advance(s)
	if !m.owned() || m.owner() != r.Contender || r.Token != 0 && r.Token != m.token {
		return simba.StatusLost
	}
	m.renew(s, r.TTL, r.Transition)
	m.confirm()
	return simba.StatusRenewed
}

// release ends the contender's tenure and removes the contender from the queue. A request that
// names a token or a session does not change the queue. Such a request may be late, and the
// contender may already wait for its next tenure.
func (m *mutex) release(s *step, r simba.ReleaseRequest) bool {
	m.advance(s)
	owned := m.owned() && m.owner() == r.Contender &&
		(r.Token == 0 || r.Token == m.token) &&
		(r.Session == 0 || m.boundTo(r.Session))
	if owned {
		// If the request names a session, the session has ended. The owner did not request that,
		// and may still rely on the lease. So the change is forced.
		s.forced = s.forced || r.Session != 0
		m.endTenure(s, simba.EventReleased, r.Reason)
	}
	if x := m.extra; x != nil && r.Token == 0 && r.Session == 0 {
		if e := x.find(r.Contender); e != nil {
			m.leave(s, e, "left")
		} else if x.reserved != nil && x.reserved.contender == r.Contender {
			// A script has removed the queue entry during the reservation.
			m.endReservation(s)
		}
	}
	m.handOff(s)
	return owned
}

// breakTenure ends the tenure of any owner.
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

// resubscribe notes whether a polling waiter is reachable now. If the waiter is reachable, it can
// get an offer again.
func (m *mutex) resubscribe(s *step, contender string) {
	m.advance(s)
	x := m.extra
	if x == nil {
		return
	}
	if e := x.find(contender); e != nil && e.ticket == nil {
		m.offerAgain(s, e)
	}
}

// offerAgain lets a polling waiter get another offer. The notice of its last offer may have gone to
// a subscription that has ended.
func (m *mutex) offerAgain(s *step, e *entry) {
	x := m.extra
	x.clearOffered(e)
	x.setReady(e, s.subscribed(m.name(), e.contender))
	if x.reserved == e {
		m.endReservation(s)
	}
	m.handOff(s)
}

// missOffer handles an offer whose notice did not reach the polling waiter. It ends the waiter's
// reservation and hands the mutex off again.
func (m *mutex) missOffer(s *step, contender string) {
	m.advance(s)
	x := m.extra
	if x == nil || m.owned() {
		return
	}
	e := x.find(contender)
	if e != nil && e.ticket == nil && x.wasOffered(e) {
		m.offerAgain(s, e)
	}
}

func (m *mutex) mayTake(s *step, contender string) bool {
	if m.owned() || s.now < s.recoverUntil {
		return false
	}
	x := m.extra
	return x == nil || x.open <= s.now && (x.reserved == nil || x.reserved.contender == contender)
}

// grant begins a tenure, and removes the contender from the queue.
func (m *mutex) grant(s *step, contender string, ttl, transition time.Duration, session uint64, reason string) {
	m.token = s.nextToken()
	m.setOwner(contender)
	if x := m.extra; x != nil {
		x.reserved, x.open = nil, 0
		if e := x.find(contender); e != nil {
			// After a handoff, the new owner does not know of its tenure yet. Without a handoff,
			// the contender itself made this request, and its reply names the tenure.
			if t := m.dequeueGranted(s, e); reason == reasonHandoff {
				x.unconfirmed = t
			}
		}
	}
	m.renew(s, ttl, transition)
	m.startedAt = s.wall
	m.bind(session)
	s.began = contender
	s.event(simba.EventAcquired, m, m.owner(), m.token, reason)
}

// renew begins a new lease.
func (m *mutex) renew(s *step, ttl, transition time.Duration) {
	m.acquired, m.acquiredAt = s.now, s.wall
	m.setWindows(ttl, transition)
	s.changed = true
}

// endTenure ends the tenure. The caller must call handOff.
func (m *mutex) endTenure(s *step, kind simba.EventKind, reason string) {
	owner := m.owner()
	s.event(kind, m, owner, m.token, reason)
	held := time.Duration(s.wall-m.startedAt) * time.Millisecond
	if kind == simba.EventExpired { // the lease may have ended while the server was down
		held -= s.now.Sub(m.end())
	}
	s.tenureLengths = append(s.tenureLengths, held)
	s.changed = true
	// There is no notice of an expiry, because contenders already know when the lease ends.
	s.freed, s.last = kind != simba.EventExpired, owner
	// After a crash, the recovery delay is as long as the longest lease that this run has granted.
	// A lease of an earlier run may be longer. If the crash lost the end of that lease, the lease
	// could outlast the recovery delay. So the end of a tenure of an earlier run is forced.
	s.forced = s.forced || m.token <= s.former
	m.setOwner("")
	m.token = 0
	if x := m.extra; x != nil {
		t := x.unconfirmed
		x.session, x.unconfirmed = 0, nil
		x.long = 0
		m.setFields(nil)
		x.last = owner
		x.sinceOpen++
		x.newOfferRound()
		if t != nil && t.state == granted && kind != simba.EventReleased {
			m.requeue(s, t)
		}
	}
}

// handOff gives a free mutex to the first reachable waiter. It grants the mutex to a blocked
// waiter, and reserves it for a polling waiter. If the handoff window is 0, there are no
// reservations. Then handOff grants the mutex to the first blocked waiter, and notifies the
// reachable polling waiters that precede it in the queue.
func (m *mutex) handOff(s *step) {
	x := m.extra
	if x == nil || m.owned() || x.reserved != nil || s.now < max(s.recoverUntil, x.open) {
		return
	}
	x.retryUnwoken()
	if m.openToOutsiders(s) {
		return
	}
	for e := x.next(); e != nil && x.reserved == nil; e = x.next() {
		if e.ticket != nil {
			m.grant(s, e.contender, e.ttl, e.transition, e.session, reasonHandoff)
			return
		}
		switch deaf := !s.subscribed(m.name(), e.contender); {
		case deaf && e.seen == 0:
			x.setReady(e, false)
		case deaf:
			x.markOffered(e)
			x.keepTurn(s, e)
		default:
			x.markOffered(e)
			s.offers = append(s.offers, offerNotice{m.name(), e.contender, x.last})
			if s.window > 0 {
				x.reserve(e, s.now.Add(s.window), false)
			}
		}
	}
}

// reserve reserves the mutex for a polling waiter. kept is entry.kept.
func (x *extra) reserve(e *entry, until simba.Instant, kept bool) {
	x.reserved, x.until, e.kept = e, until, kept
	e.lapse = max(e.lapse, until)
}

// enqueue adds the contender to the queue, or updates its entry.
func (m *mutex) enqueue(s *step, r simba.AcquireRequest, t *ticket) {
	x := m.makeExtra()
	e := x.find(r.Contender)
	if e == nil {
		e = &entry{contender: r.Contender, order: s.newOrder(s.wall), since: s.now}
		x.add(e)
		s.event(simba.EventQueued, m, r.Contender, 0, "")
	}
	// A contender may have a blocked connection, and poll on another one.
	// A poll does not change the request of a blocked connection.
	if t != nil || e.ticket == nil {
		e.ttl, e.transition, e.session = r.TTL, r.Transition, r.Session
	}
	if t != nil {
		old := x.setTicket(e, t)
		s.wake(old)
		if old != nil {
			old.state = superseded
		}
	}
	if e.ticket != nil {
		x.clearOffered(e) // the notice of an earlier offer does not count for a blocked waiter
		x.setReady(e, true)
		return
	}
	x.setLapse(e, m.lapseTime(s))
	x.setReady(e, s.subscribed(m.name(), e.contender))
}

// leave removes a contender from the queue. The contender does not become the owner.
func (m *mutex) leave(s *step, e *entry, reason string) {
	x := m.extra
	s.wake(x.setTicket(e, nil))
	x.remove(e)
	s.event(simba.EventLeft, m, e.contender, 0, reason)
	if x.reserved == e {
		m.endReservation(s)
		m.handOff(s)
	}
}

// endReservation ends the reservation of the mutex. The caller must call handOff.
func (m *mutex) endReservation(s *step) {
	x := m.extra
	// x.last is empty if the mutex has had no owner since the server's start.
	s.freed, s.last = true, cmp.Or(x.last, x.reserved.contender)
	x.reserved = nil
}

// longestLapse bounds the time that a polling waiter stays in the queue. The lease of the owner can
// be endless, if a Redis key without expiry is the lock.
const longestLapse = simba.MaxTTL + simba.MaxTransition

// lapseTime returns the instant at which a polling waiter lapses, unless it asks again before. The
// queue grace begins at the end of the present lease, because the waiter asks again then.
func (m *mutex) lapseTime(s *step) simba.Instant {
	from := s.now
	if m.owned() {
		from = max(from, min(m.end(), from.Add(longestLapse)))
	}
	return from.Add(s.grace)
}

// bind binds the lease to a session; 0 = none.
func (m *mutex) bind(session uint64) {
	if session != 0 || m.extra != nil {
		m.makeExtra().session = session
	}
}

func (m *mutex) boundTo(session uint64) bool {
	return m.extra != nil && m.extra.session == session
}
