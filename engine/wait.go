package engine

import "github.com/simba-resp/simba-resp"

// ticket is a blocked ACQUIRE. engine, mutex and contender do not change. The mutex's shard.mu
// guards all other fields.
type ticket struct {
	engine    *Engine
	mutex     string
	contender string
	waiter    simba.Waiter

	state  waitState
	absent bool   // the connection was woken for a lost grant, and has not called End since
	entry  *entry // the queue entry; nil = not in the queue

	// The tenure that the waiter was granted.
	token uint64    // 0 = none
	from  *entry    // the queue entry before the grant
	after simba.Seq // the change whose commit wakes the waiter
}

// waitState is the state of a blocked ACQUIRE. When a grant is committed, the engine wakes the
// waiter's connection, which then calls End. The tenure may end before End, because its lease
// expires or somebody breaks it. Then the grant is lost, and the waiter returns to the queue.
//
//	           grant            End
//	waiting ──────────▶ granted ─────▶ ended
//	   ▲                   │
//	   │ retry             │ requeue
//	   └────── lost ◀──────┘
//
// A lost waiter gets no offers until its connection, or that of another lost waiter, calls End.
// Otherwise a stuck connection would own the mutex again and again. There is one exception. If the
// lost grant was not committed, the connection was not woken, and may be fine. So when that grant
// is committed, the waiter gets one offer, unless it is absent already.
//
// While a waiter is granted, and until the owner's next request, extra.unconfirmed is its ticket.
type waitState uint8

const (
	waiting waitState = iota
	granted
	lost
	superseded // another connection of the same contender waits in its place
	ended
)

// unrecorded is the Seq of a change that the sequencer has yet to number.
const unrecorded = everything

// owns reports whether the tenure that the waiter was granted still lasts.
func (t *ticket) owns(m *mutex) bool { return t.token != 0 && t.token == m.token }

// committed reports whether the grant is committed.
func (t *ticket) committed() bool { return t.after <= t.engine.sequencer.journal.Committed() }

// requeue puts a waiter back into the queue, because its grant is lost. The waiter keeps its order.
func (m *mutex) requeue(s *step, t *ticket) {
	x, e := m.extra, t.from
	t.state = lost
	if t.absent || t.committed() {
		t.absent = true
	} else {
		x.unwoken = append(x.unwoken, t)
	}
	t.token, t.from = 0, nil
	if again := x.find(e.contender); again != nil { // a script has queued it in this step
		again.ttl, again.transition, again.session = e.ttl, e.transition, e.session
		x.setReady(again, false)
		e = again
	} else {
		x.add(e)
		s.event(simba.EventQueued, m, e.contender, 0, "")
	}
	x.setTicket(e, t)
}

// retry lets a lost waiter get an offer.
func (q *queue) retry(t *ticket) {
	t.state, t.absent = waiting, true
	q.setReady(t.entry, true)
}

// retryUnwoken retries the waiters whose lost grant is committed, so that their connections are
// woken.
func (q *queue) retryUnwoken() {
	for len(q.unwoken) > 0 && q.unwoken[0].committed() {
		if t := q.unwoken[0]; t.state == lost && t.entry != nil {
			q.retry(t)
		}
		q.unwoken[0], q.unwoken = nil, q.unwoken[1:]
	}
	if len(q.unwoken) == 0 {
		q.unwoken = nil
	}
}

// retryAll retries all lost waiters whose lost grant is committed. It is called when the connection
// of one of them calls End. The other connections probably call End soon too.
func (q *queue) retryAll() {
	q.retryUnwoken()
	for _, e := range q.all {
		if t := e.ticket; t != nil && t.state == lost && t.committed() {
			q.retry(t)
		}
	}
}

// endWait ends a blocked wait and returns its result. A woken waiter whose tenure is already over,
// or not committed yet, waits on.
func (m *mutex) endWait(s *step, t *ticket, why simba.EndReason) simba.Status {
	if e := t.entry; why == simba.EndWoken && e != nil && !e.ready {
		m.extra.retryAll() // before advance, so that a handoff by advance does not skip this waiter
	}
	m.advance(s) // may grant the mutex to the waiter
	e := t.entry
	if why == simba.EndWoken && (e != nil || t.owns(m) && !t.committed()) {
		if e != nil && !e.ready { // the lease of the waiter expired in this step
			m.extra.retryAll()
			m.handOff(s)
		}
		t.absent = false
		return simba.StatusWaiting
	}
	// If extra.unconfirmed keeps t in memory, it must not keep the entry and the waiter too.
	was := t.state
	t.state, t.from, t.waiter = ended, nil, nil
	switch {
	case t.token != 0:
		if why == simba.EndGone {
			m.abandon(s, t)
		}
		switch {
		case !t.owns(m):
		case t.token <= s.former:
			return simba.StatusRenewed // endRecovery has renewed the lease
		default:
			return simba.StatusAcquired
		}
	case was == superseded:
		return simba.StatusQueued
	case e == nil: // a request has removed the contender from the queue
	case why == simba.EndGone:
		x := m.extra
		x.setTicket(e, nil)
		x.setLapse(e, s.now.Add(s.grace)) // a living client reconnects soon
		x.setReady(e, s.subscribed(m.name(), t.contender))
		m.handOff(s) // the contender may be reachable as a polling waiter
		return simba.StatusQueued
	case why == simba.EndTimeout:
		m.extra.setTicket(e, nil)
		m.leave(s, e, "timeout")
	default:
		m.extra.setTicket(e, nil)
		m.leave(s, e, "left")
	}
	return simba.StatusTimeout
}

// abandon ends the tenure of a waiter that disconnected before its reply, and hands the mutex off
// to the next waiter. If the contender has learned of its tenure on another connection, it keeps
// the mutex.
func (m *mutex) abandon(s *step, t *ticket) {
	m.advance(s)
	if t.token <= s.former || m.extra == nil || m.extra.unconfirmed != t {
		return
	}
	s.forced = true // a crash must not bring it back: no client would release it
	m.endTenure(s, simba.EventReleased, "waiter gone")
	m.handOff(s)
}

// confirm records that the owner knows of its tenure. The owner has made another request, and its
// reply names the tenure.
func (m *mutex) confirm() {
	if m.extra != nil {
		m.extra.unconfirmed = nil
	}
}
