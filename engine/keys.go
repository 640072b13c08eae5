package engine

import (
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
)

// This file has the transitions of lock keys. The commit of a transaction calls them in the step of
// each mutex. It calls conclude last.

// Reasons in the history.
const (
	reasonOverwritten = "overwritten"
	reasonDeleted     = "deleted"
	reasonReserved    = "its turn"
	reasonRemoved     = "removed"
)

func (s *step) leaseOf(l simba.Lock) time.Duration {
	if l.EndsAt == 0 {
		return l.TTL
	}
	left := time.Duration(l.EndsAt-s.wall) * time.Millisecond
	return min(max(left, time.Millisecond), simba.MaxLockTTL) // an end in the past: expire at once
}

// take begins a tenure, and breaks the present one.
func (m *mutex) take(s *step, l simba.Lock) {
	was := m.lease()
	if m.owned() {
		s.forced = true
		m.endTenure(s, simba.EventBroken, reasonOverwritten)
	}
	if l.TTL == simba.KeepTTL {
		m.grant(s, l.Owner, was.TTL, was.Transition, 0, "")
		m.acquired, m.acquiredAt = was.Acquired, was.AcquiredAt
	} else {
		m.grant(s, l.Owner, s.leaseOf(l), 0, 0, "")
	}
	m.setFields(l.Fields)
}

// change changes a key within its tenure.
func (m *mutex) change(s *step, l simba.Lock, renew bool) {
	if !m.owned() { // MayTake has shown an owner to the transaction, but the mutex is free
		m.take(s, l)
		return
	}
	// A crash must not undo an acknowledged change of the owner or of a field, or the new end of an
	// endless lease. No later renewal would repeat the change.
	other := m.owner() != l.Owner || !slices.Equal(m.fields(), l.Fields)
	s.forced = s.forced || other || m.end() == never
	if other {
		m.setOwner(l.Owner)
		m.setFields(l.Fields)
	}
	if renew {
		m.renew(s, s.leaseOf(l), 0)
	}
	s.changed = true
	m.confirm()
}

// drop ends the tenure. The change is forced, because it may end the tenure against the owner's
// will.
func (m *mutex) drop(s *step) {
	if m.owned() {
		s.forced = true
		m.endTenure(s, simba.EventReleased, reasonDeleted)
	}
}

// enqueueAt queues a polling contender by score, or moves it.
func (m *mutex) enqueueAt(s *step, contender string, score float64) {
	x := m.makeExtra()
	e := x.find(contender)
	to := order{score, s.nextArrival()}
	if e == nil {
		e = &entry{contender: contender, order: to, since: s.now}
		x.add(e)
		s.event(simba.EventQueued, m, contender, 0, "")
	} else {
		x.move(e, to)
	}
	if e.ticket == nil {
		x.setLapse(e, m.lapseTime(s))
		x.setReady(e, s.subscribed(m.name(), contender))
	}
}

// conclude chooses the next owner after the other transitions of a transaction. To release a mutex,
// the Redis scripts of Simba on the JVM dequeue the first waiter and notify it. So if the mutex is
// free, a contender that the transaction has dequeued gets the mutex or the reservation.
func (m *mutex) conclude(s *step, dequeued []string) {
	for _, contender := range dequeued {
		x := m.extra
		if x == nil {
			break
		}
		e := x.find(contender)
		switch {
		case e == nil:
		case x.reserved == e: // the contender keeps its reservation
			x.reserved = nil
			m.leave(s, e, reasonReserved)
			x.reserved = e
		case m.owned() || x.reserved != nil || s.now < s.recoverUntil:
			m.leave(s, e, reasonRemoved)
		case e.ticket != nil:
			m.grant(s, e.contender, e.ttl, e.transition, e.session, reasonHandoff)
		case s.window > 0 && s.subscribed(m.name(), contender):
			m.leave(s, e, reasonReserved)
			x.reserve(e, s.now.Add(s.window), false)
		default:
			m.leave(s, e, reasonRemoved)
		}
	}
	m.dequeueOwner(s)
	m.handOff(s)
}

// dequeueOwner dequeues the owner, except during the recovery delay. A script may have queued the
// owner, or may have made a waiter the owner by a new value of the key.
func (m *mutex) dequeueOwner(s *step) {
	x := m.extra
	if x == nil || !m.owned() || m.token <= s.former && s.now < s.recoverUntil {
		return
	}
	if e := x.find(m.owner()); e != nil {
		m.dequeueGranted(s, e)
	}
}

// isAs reports whether l still describes the mutex.
func (m *mutex) isAs(l simba.Lock, now simba.Instant) bool {
	is := m.lock(now)
	return is.Token == l.Token && is.Owner == l.Owner && is.EndsAt == l.EndsAt && slices.Equal(is.Fields, l.Fields)
}

// reservedFor returns the waiter with the reservation; "" = none.
func (m *mutex) reservedFor() string {
	if x := m.extra; x != nil && x.reserved != nil && !m.owned() {
		return x.reserved.contender
	}
	return ""
}

func (m *mutex) members() []simba.QueueMember {
	if m.extra == nil {
		return nil
	}
	list := make([]simba.QueueMember, 0, m.waiters())
	for _, e := range m.extra.all {
		list = append(list, simba.QueueMember{Contender: e.contender, Score: e.order.score})
	}
	return list
}

// queueIs reports whether the queue has these members.
func (m *mutex) queueIs(members []simba.QueueMember) bool {
	if m.waiters() != len(members) {
		return false
	}
	for i, p := range members {
		if e := m.extra.all[i]; e.contender != p.Contender || e.order.score != p.Score {
			return false
		}
	}
	return true
}

// lock returns the lock key of the mutex.
func (m *mutex) lock(now simba.Instant) simba.Lock {
	if !m.owned() {
		return simba.Lock{}
	}
	l := simba.Lock{Token: m.token, Owner: m.owner(), Fields: m.fields(), TTL: simba.Endless}
	if end := m.end(); end != never {
		l.TTL = remaining(end, now)
		l.EndsAt = m.acquiredAt + end.Sub(m.acquired).Milliseconds()
	}
	return l
}
