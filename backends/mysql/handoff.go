package mysql

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// reasonHandoff is the reason in the event of a tenure that was granted to a blocked waiter.
const reasonHandoff = "handoff"

// waitState is the Waiter of a ticket. It adds what the engine knows of the wait.
type waitState struct {
	simba.Waiter
	since time.Time // when the waiter was enqueued; wake gives it no lease of an earlier statement
	lease lease     // the granted lease, if any

	blocked bool // Acquire has returned StatusWaiting; guarded by Backend.mu
}

func waitStateOf(t *proxy.Ticket) *waitState { return t.Request.Waiter.(*waitState) }

// handoff describes a handoff: from which holder, and how its tenure ends.
type handoff struct {
	from      holder
	kind      simba.EventKind // the event that ends the holder's tenure
	reason    string
	requester *proxy.Ticket // the ticket whose Acquire runs this handoff; it needs no wake-up
}

// handOff hands a mutex off to the first reachable waiter, or frees it. The caller holds m.lock.
// If h.from is a tenure, held reports whether it has ended. If h.from is free, held reports whether
// a waiter was granted the mutex. If held is true, state is the row as this server has left it.
//
// For a blocked waiter, one statement ends the holder's tenure and begins that of the waiter. If
// the waiter has disconnected, handOff hands the mutex off from it to the next waiter.
func (b *Backend) handOff(ctx context.Context, m *mutexState, h handoff) (held bool, state row, err error) {
	from, kind, reason := h.from, h.kind, h.reason
	for {
		e, t := b.nextWaiter(m, from)
		if from.free() && t == nil {
			if e == nil {
				b.announceFree(m)
				return held, state, nil
			}
			if reserved := b.notify(m, e, from.version); reserved {
				return held, state, nil
			}
			continue
		}
		var to *lease
		if t != nil {
			to = &lease{owner: e.contender, ttl: t.Request.TTL, transition: t.Request.Transition}
		}
		now, ok, err := b.store.handOff(ctx, m.mutex, from, to)
		if err != nil {
			b.refreshSoon(m)
			dead := b.store.dbDeadline(ctx) + lateEffectLimit
			switch { // the statement may have run, or may still run
			case isConflict(err):
			case to != nil:
				b.addOrphan(m, orphan{owner: to.owner, at: to.at, deadline: dead, lease: *to})
			default:
				b.addOrphan(m, orphan{deadline: dead})
			}
			if !held {
				return false, state, err
			}
			if !from.free() { // the holder is a waiter that has disconnected
				b.addOrphan(m, orphan{owner: from.owner, at: from.at, deadline: dead})
			}
			return true, state, nil // the first holder's tenure has ended
		}
		if !ok {
			return held, state, nil
		}
		held = true
		if !from.free() {
			b.recordEnd(m, from, now, kind, reason)
		}
		if to == nil {
			state = now
			from = holder{version: now.version}
			continue
		}
		state = to.asRow()
		why := reasonHandoff
		if t == h.requester {
			why = ""
		}
		b.recordBegin(m, *to, why)
		if b.deliver(m, t, *to, t == h.requester) {
			return held, state, nil
		}
		from, kind, reason = holder{owner: to.owner, token: to.token, at: to.at}, simba.EventReleased, "waiter gone"
	}
}

// deliver gives a lease to its waiter. requester is true if t is handoff.requester. deliver returns
// false if the waiter is gone.
func (b *Backend) deliver(m *mutexState, t *proxy.Ticket, granted lease, requester bool) bool {
	if requester && t.Withdraw() {
		waitStateOf(t).lease = granted
		b.bind(m.mutex, t.Request.Session, granted)
		b.removeUnlessBlocked(m, granted.owner)
		return true
	}
	if b.wake(m, granted) {
		b.counts.handoffs.Add(1)
		return true
	}
	b.removeUnlessBlocked(m, granted.owner)
	return false
}

// wake gives the lease to its owner's waiter and removes the queue entry. It returns false if there
// is no waiter, or if the waiter was enqueued after the statement of the lease was sent. Such a
// waiter stays in the queue: its contender may have released this lease meanwhile, through another
// server.
func (b *Backend) wake(m *mutexState, granted lease) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.waiters.Find(m.mutex, granted.owner)
	if t == nil || waitStateOf(t).since.After(granted.since) {
		return false
	}
	waitStateOf(t).lease = granted
	if !b.waiters.Grant(m.mutex, granted.owner, proxy.Grant{Token: granted.token, Since: granted.since}) {
		return false
	}
	b.bindLocked(m.mutex, t.Request.Session, granted)
	if e := m.index[granted.owner]; e != nil {
		m.removeLocked(e)
	}
	return true
}

// wakeBlocked is like wake, for a lease that the contender got by another request, here or through
// another server. If the Acquire of the waiter has not returned yet, wakeBlocked does nothing,
// since that Acquire renews the lease.
func (b *Backend) wakeBlocked(m *mutexState, granted lease) {
	if t := b.waiters.Find(m.mutex, granted.owner); t != nil && b.isBlocked(t) && !b.wake(m, granted) {
		b.refreshSoon(m) // the waiter was enqueued after the statement was sent
	}
}

func (b *Backend) isBlocked(t *proxy.Ticket) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return waitStateOf(t).blocked
}

// notify sends a polling waiter the released notice, and reports whether the mutex is now reserved
// for it.
func (b *Backend) notify(m *mutexState, e *entry, version uint64) (reserved bool) {
	window := b.HandoffWindow()
	b.mu.Lock()
	e.notifiedAt = version + 1
	if window > 0 {
		m.reserved, m.reservedUntil = e, time.Now().Add(window)
		if e.expiresAt.Before(m.reservedUntil) {
			e.expiresAt = m.reservedUntil
		}
	}
	last := m.lastOwner
	b.mu.Unlock()
	if b.notices.Publish(simba.ContenderChannel(m.mutex, e.contender), simba.OfferNotice(last, e.contender)) > 0 {
		return window > 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.reserved == e {
		m.reserved = nil
	}
	return false
}
