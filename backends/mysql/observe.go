package mysql

import (
	"time"

	"github.com/simba-resp/simba-resp"
)

// observe takes note of what the table shows and tells what has happened since it was
// looked at last. It is called in the gate.
func (b *Backend) observe(m *mutexState, r row) {
	b.noteRow(m, r)
	before, known := m.seen, m.known
	m.seen, m.known = r, true
	if !known {
		// Of a tenure that began here its end is news.
		e, ok := b.eventLog.Last(m.mutex)
		if !ok || e.Kind != simba.EventAcquired {
			return
		}
		before = row{owner: e.Owner, token: e.Token, version: r.versionOf(e.Token), live: true}
	}
	b.noteFreed(m, b.announceChange(m.mutex, before, r))
}

// freed takes note of who gave the mutex up, if anybody, until that is announced.
func (b *Backend) noteFreed(m *mutexState, owner string) {
	if owner == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m.freedBy = owner
}

// tellChange announces what happened between two looks at a mutex. If the mutex was given up and
// is free since then, it returns by whom, the first time.
func (b *Backend) announceChange(mutex string, before, now row) (freed string) {
	same := sameTenure(before, now)
	var events []simba.Event
	if before.live && !(same && now.live) {
		// A release counts the version up, an expiry doesn't.
		kind := simba.EventExpired
		if !same && (now.owner == "" || now.version > before.version+1) {
			kind = simba.EventReleased
		}
		end := before.token
		if same {
			end = now.token
		}
		events = append(events, simba.Event{Kind: kind, Mutex: mutex, Owner: before.owner, Token: end})
	}
	if !same && now.owner != "" {
		events = append(events, simba.Event{Kind: simba.EventAcquired, Mutex: mutex, Owner: now.owner, Token: now.token})
		if !now.live {
			events = append(events, simba.Event{Kind: simba.EventExpired, Mutex: mutex, Owner: now.owner, Token: now.token})
		}
	}
	for _, e := range b.announce(events) {
		if e.Kind == simba.EventReleased && now.owner == "" {
			freed = e.Owner
		}
	}
	return freed
}

// sameTenure reports whether two looks show the same tenure, or none.
//
// A contender on the JVM counts the version up at each renewal too. So without fencing_token a
// lease that ran at the last look and has the same owner now is taken for the same
// tenure, whatever the version. With it, an owner on the JVM may have had no token of its own yet.
func sameTenure(before, now row) bool {
	switch {
	case before.owner != now.owner:
		return false
	case before.token == now.token:
		return true
	case !before.live:
		return false
	case !now.fenced:
		return true
	}
	return before.fenced && (before.isLegacy() || before.lacksToken()) && now.fencingToken%tokenUnit != 0
}

// announce announces events and returns those that were new.
func (b *Backend) announce(events []simba.Event) (fresh []simba.Event) {
	for _, e := range events {
		if b.eventLog.Announce(e) == 0 {
			continue
		}
		if e.Kind == simba.EventExpired {
			b.counts.expired.Add(1)
		}
		fresh = append(fresh, e)
	}
	return fresh
}

// announceFree tells everybody that a mutex was given up, unless that was done before. It is called in the
// gate when the mutex is free and nobody is next.
func (b *Backend) announceFree(m *mutexState) {
	b.mu.Lock()
	owner := m.freedBy
	m.freedBy = ""
	b.mu.Unlock()
	if owner != "" {
		b.notices.Publish(simba.MutexChannel(m.mutex), simba.ReleasedNotice(owner))
	}
}

// sighted takes note of when the mutex will be free and of who has it.
func (b *Backend) noteRow(m *mutexState, r row) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.token = r.token
	if r.owner != "" {
		m.lastOwner = r.owner
	}
	m.leaseEnd = time.Time{}
	if r.live {
		m.leaseEnd = time.Now().Add(r.left())
		m.reserved, m.freedBy = nil, ""
	}
	m.failures = 0
	m.refreshAt = time.Now().Add(b.refreshDelay(r))
}

// began records, in the gate, a tenure that this server made. Whatever tenure it knew before has
// ended: it expired if no other version lies between.
func (b *Backend) recordBegin(m *mutexState, t lease, reason string) {
	if e, ok := b.eventLog.Last(m.mutex); ok && e.Kind == simba.EventAcquired && e.Token < t.token {
		kind := simba.EventReleased
		last := t.asRow().versionOf(e.Token)
		if m.known && m.seen.token == e.Token {
			last = m.seen.version
		}
		if last+1 == t.version {
			kind = simba.EventExpired
		}
		b.announce([]simba.Event{{Kind: kind, Mutex: m.mutex, Owner: e.Owner, Token: e.Token}})
	}
	if b.eventLog.Announce(simba.Event{Kind: simba.EventAcquired, Mutex: m.mutex, Owner: t.owner, Token: t.token, Reason: reason}) > 0 {
		b.counts.acquired.Add(1)
	}
	m.seen = t.asRow() // if it is known at all
	b.noteLease(m, t)
}

// holds takes note, in the gate, of a lease that this server began or renewed.
func (b *Backend) noteLease(m *mutexState, t lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.token = t.token
	b.noteLeaseLocked(m, t)
}

// guarded takes note of a renewal outside the gate. Its answer may be late: of a
// tenure that has ended meanwhile it says nothing.
func (b *Backend) noteRenewal(m *mutexState, t lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.token == t.token || m.token == 0 {
		b.noteLeaseLocked(m, t)
	}
}

func (b *Backend) noteLeaseLocked(m *mutexState, t lease) {
	_, left := t.left()
	m.lastOwner, m.leaseEnd, m.reserved, m.freedBy = t.owner, time.Now().Add(left), nil, ""
	m.refreshAt = time.Now().Add(b.refreshDelay(t.asRow()))
}

// ended records, in the gate, that this server ended a tenure, and what the row is since then.
func (b *Backend) recordEnd(m *mutexState, was holder, now row, kind simba.EventKind, reason string) {
	if was.token == 0 {
		was.token = tokenOf(now.version-1, now.fenced) // by statements.ofAny
	}
	fresh := b.eventLog.Announce(simba.Event{Kind: kind, Mutex: m.mutex, Owner: was.owner, Token: was.token, Reason: reason}) > 0
	if fresh {
		if kind == simba.EventBroken {
			b.counts.broken.Add(1)
		} else {
			b.counts.released.Add(1)
		}
	}
	m.seen = now
	b.mu.Lock()
	defer b.mu.Unlock()
	m.token = now.token
	m.lastOwner, m.leaseEnd, m.reserved, m.refreshAt = was.owner, time.Time{}, nil, time.Time{}
	if fresh {
		m.freedBy = was.owner
	}
	delete(b.sessions, m.mutex)
}
