package mysql

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// reasonHandoff is the reason of a tenure that a blocked waiter was granted.
const reasonHandoff = "handoff"

// seat is the Waiter of a ticket, with what the engine remembers of its grant.
type waitState struct {
	simba.Waiter
	since time.Time // it is seated; what the table was asked before is no answer to it
	lease lease     // what was granted, once it is

	blocked bool // its own request has been answered: it waits for others; guarded by Backend.mu
}

func waitStateOf(t *proxy.Ticket) *waitState { return t.Request.Waiter.(*waitState) }

// passage is a mutex on its way from one holder to the next.
type handoff struct {
	from      holder
	kind      simba.EventKind // how the holder's tenure ends
	reason    string
	requester *proxy.Ticket // if it gets the mutex it is not woken: it has not blocked yet
}

// passOn gives a mutex to the first waiter that can be told, or to nobody. It is
// called in the gate. It reports whether the holder held it: if not, nothing was
// changed. state is what the row is now, as far as this server has changed it.
//
// A blocked waiter is given it in the same statement that ends the holder's tenure.
// Is it gone when it should be told, it is the holder from whom the next one gets it.
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
			switch { // it may have been done, or may yet be
			case isConflict(err):
			case to != nil:
				b.addOrphan(m, orphan{owner: to.owner, at: to.at, deadline: dead, lease: *to})
			default:
				b.addOrphan(m, orphan{deadline: dead})
			}
			if !held {
				return false, state, err
			}
			if !from.free() { // if it was not, one that is gone still holds it
				b.addOrphan(m, orphan{owner: from.owner, at: from.at, deadline: dead})
			}
			return true, state, nil // what was asked for is done
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

// deliver tells a waiter of its lease. It reports false if nobody waits any more.
func (b *Backend) deliver(m *mutexState, t *proxy.Ticket, granted lease, requester bool) bool {
	if requester && t.Withdraw() {
		waitStateOf(t).lease = granted
		b.bind(m.mutex, t.Request.Session, granted)
		b.removeUnlessBlocked(m, granted.owner)
		return true
	}
	if b.wake(m, granted) {
		b.counts.handedOn.Add(1)
		return true
	}
	b.removeUnlessBlocked(m, granted.owner)
	return false
}

// wake tells the waiter of a contender, if there is one, of its lease, and takes it out
// of the queue. One that sat down after the table was asked gets nothing: the contender may have
// released that lease before, through another server. It keeps its place, and a look or its own request finds out.
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

// wakeBlocked is wake for a lease that the contender was granted otherwise: by another request of its own, or through another
// server. One whose request has yet to be answered gets nothing, since that renews the lease.
func (b *Backend) wakeBlocked(m *mutexState, granted lease) {
	if t := b.waiters.Find(m.mutex, granted.owner); t != nil && b.isBlocked(t) && !b.wake(m, granted) {
		b.refreshSoon(m) // it sat down after the table was asked
	}
}

func (b *Backend) isBlocked(t *proxy.Ticket) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return waitStateOf(t).blocked
}

// tell tells a polling waiter that it is its turn, and reports whether the mutex is
// kept for it now.
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
	if b.notices.Publish(simba.ContenderChannel(m.mutex, e.contender), simba.ReleasedNotice(last)) > 0 {
		return window > 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.reserved == e {
		m.reserved = nil
	}
	return false
}
