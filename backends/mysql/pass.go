package mysql

import (
	"context"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// reasonHandoff is the reason of a tenure that a blocked waiter was granted.
const reasonHandoff = "handoff"

// lossTime is for how long after its fence a statement can still take effect, in ms:
// it has begun before, and waits for a row. The database looks once a second
// whether such a wait has been too long.
const lossTime = int64(2*lockWait/time.Millisecond) + 500

// seat is the Waiter of a ticket, with what the engine remembers of its grant.
type seat struct {
	simba.Waiter
	since time.Time // it is seated; what the table was asked before is no answer to it
	lease lease     // what was granted, once it is

	blocked bool // its own request has been answered: it waits for others; guarded by Backend.mu
}

func seatOf(t *proxy.Ticket) *seat { return t.Request.Waiter.(*seat) }

// passage is a mutex on its way from one holder to the next.
type passage struct {
	from   holder
	kind   simba.EventKind // how the holder's tenure ends
	reason string
	asker  *proxy.Ticket // if it gets the mutex it is not woken: it has not blocked yet
}

// passOn gives a mutex to the first waiter that can be told, or to nobody. It is
// called in the gate. It reports whether the holder held it: if not, nothing was
// changed. state is what the row is now, as far as this server has changed it.
//
// A blocked waiter is given it in the same statement that ends the holder's tenure.
// Is it gone when it should be told, it is the holder from whom the next one gets it.
func (b *Backend) passOn(ctx context.Context, l *line, p passage) (held bool, state row, err error) {
	from, kind, reason := p.from, p.kind, p.reason
	for {
		e, t := b.heir(l, from)
		if from.free() && t == nil {
			if e == nil {
				b.announceFree(l)
				return held, state, nil
			}
			if kept := b.tell(l, e, from.version); kept {
				return held, state, nil
			}
			continue
		}
		var to *lease
		if t != nil {
			to = &lease{owner: e.contender, ttl: t.Request.TTL, transition: t.Request.Transition}
		}
		now, ok, err := b.store.pass(ctx, l.mutex, from, to)
		if err != nil {
			b.hurry(l)
			dead := b.store.fence(ctx) + lossTime
			switch { // it may have been done, or may yet be
			case isConflict(err):
			case to != nil:
				b.haunt(l, ghost{owner: to.owner, at: to.at, dead: dead, lease: *to})
			default:
				b.haunt(l, ghost{dead: dead})
			}
			if !held {
				return false, state, err
			}
			if !from.free() { // if it was not, one that is gone still holds it
				b.haunt(l, ghost{owner: from.owner, at: from.at, dead: dead})
			}
			return true, state, nil // what was asked for is done
		}
		if !ok {
			return held, state, nil
		}
		held = true
		if !from.free() {
			b.ended(l, from, now, kind, reason)
		}
		if to == nil {
			state = now
			from = holder{version: now.version}
			continue
		}
		state = to.asRow()
		why := reasonHandoff
		if t == p.asker {
			why = ""
		}
		b.began(l, *to, why)
		if b.deliver(l, t, *to, t == p.asker) {
			return held, state, nil
		}
		from, kind, reason = holder{owner: to.owner, token: to.token, at: to.at}, simba.EventReleased, "waiter gone"
	}
}

// deliver tells a waiter of its lease. It reports false if nobody waits any more.
func (b *Backend) deliver(l *line, t *proxy.Ticket, granted lease, asker bool) bool {
	if asker && t.Withdraw() {
		seatOf(t).lease = granted
		b.bind(l.mutex, t.Request.Session, granted)
		b.quitUnlessBlocked(l, granted.owner)
		return true
	}
	if b.wake(l, granted) {
		b.counts.handedOn.Add(1)
		return true
	}
	b.quitUnlessBlocked(l, granted.owner)
	return false
}

// wake tells the waiter of a contender, if there is one, of its lease, and takes it out
// of the queue. One that sat down after the table was asked gets nothing: the contender may have
// released that lease before, through another server. It keeps its place, and a look or its own request finds out.
func (b *Backend) wake(l *line, granted lease) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.waiters.Find(l.mutex, granted.owner)
	if t == nil || seatOf(t).since.After(granted.since) {
		return false
	}
	seatOf(t).lease = granted
	if !b.waiters.Grant(l.mutex, granted.owner, proxy.Grant{Token: granted.token, Since: granted.since}) {
		return false
	}
	b.bindLocked(l.mutex, t.Request.Session, granted)
	if e := l.index[granted.owner]; e != nil {
		l.removeLocked(e)
	}
	return true
}

// wakeBlocked is wake for a lease that the contender was granted otherwise: by another request of its own, or through another
// server. One whose request has yet to be answered gets nothing, since that renews the lease.
func (b *Backend) wakeBlocked(l *line, granted lease) {
	if t := b.waiters.Find(l.mutex, granted.owner); t != nil && b.isBlocked(t) && !b.wake(l, granted) {
		b.hurry(l) // it sat down after the table was asked
	}
}

func (b *Backend) isBlocked(t *proxy.Ticket) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return seatOf(t).blocked
}

// tell tells a polling waiter that it is its turn, and reports whether the mutex is
// kept for it now.
func (b *Backend) tell(l *line, e *entry, version uint64) (kept bool) {
	window := b.HandoffWindow()
	b.mu.Lock()
	e.toldAt = version + 1
	if window > 0 {
		l.reserved, l.until = e, time.Now().Add(window)
		if e.lapse.Before(l.until) {
			e.lapse = l.until
		}
	}
	last := l.last
	b.mu.Unlock()
	if b.notices.Publish(simba.ContenderChannel(l.mutex, e.contender), simba.ReleasedNotice(last)) > 0 {
		return window > 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.reserved == e {
		l.reserved = nil
	}
	return false
}

// haunt remembers a change that nobody may know of.
func (b *Backend) haunt(l *line, g ghost) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.ghosts = append(l.ghosts, g)
	l.lookAt = time.Now()
}

// haunted reports whether there are ghosts.
func (b *Backend) haunted(l *line) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(l.ghosts) > 0
}

// settle decides about ghosts by the row, which was read with a lock: a lease that is
// there gets its waiter told, or is passed on if that is gone. It is called in the gate
// and reports whether it changed the row.
func (b *Backend) settle(ctx context.Context, l *line, r row) (changed bool, err error) {
	b.mu.Lock()
	ghosts := l.ghosts
	l.ghosts = nil
	b.mu.Unlock()
	var rest []ghost
	for _, g := range ghosts {
		switch {
		case g.owner != "" && r.live && r.owner == g.owner && r.acquiredAt == g.at:
			granted := g.lease
			granted.owner, granted.token, granted.version, granted.at = r.owner, r.token, r.version, r.acquiredAt
			b.began(l, granted, reasonHandoff)
			if granted.ttl > 0 && b.wake(l, granted) {
				b.counts.handedOn.Add(1)
				continue
			}
			changed = true
			_, _, err = b.passOn(ctx, l, passage{
				from: holder{owner: r.owner, token: r.token, at: r.acquiredAt}, kind: simba.EventReleased, reason: "waiter gone",
			})
			if err != nil {
				rest = append(rest, g)
			}
		case r.now < g.dead:
			rest = append(rest, g)
		}
	}
	b.mu.Lock()
	l.ghosts = append(l.ghosts, rest...)
	b.mu.Unlock()
	return changed, err
}

// exorcise forgets the ghosts of a contender that was told of its lease.
func (b *Backend) exorcise(l *line, contender string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.ghosts = slices.DeleteFunc(l.ghosts, func(g ghost) bool { return g.owner == contender })
}

// lay forgets one ghost.
func (b *Backend) lay(l *line, owner string, at int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.ghosts = slices.DeleteFunc(l.ghosts, func(g ghost) bool { return g.owner == owner && g.at == at })
}
