package mysql

import (
	"time"

	"github.com/simba-resp/simba-resp"
)

// observe takes note of what the table shows and tells what has happened since it was
// looked at last. It is called in the gate.
func (b *Backend) observe(l *line, r row) {
	b.sighted(l, r)
	before, known := l.seen, l.known
	l.seen, l.known = r, true
	if !known {
		// Of a tenure that began here its end is news.
		e, ok := b.eventLog.Last(l.mutex)
		if !ok || e.Kind != simba.EventAcquired {
			return
		}
		before = row{owner: e.Owner, token: e.Token, version: r.versionOf(e.Token), live: true}
	}
	b.freed(l, b.tellChange(l.mutex, before, r))
}

// freed takes note of who gave the mutex up, if anybody, until that is announced.
func (b *Backend) freed(l *line, owner string) {
	if owner == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l.freed = owner
}

// tellChange announces what happened between two looks at a mutex. If the mutex was given up and
// is free since then, it returns by whom, the first time.
func (b *Backend) tellChange(mutex string, before, now row) (freed string) {
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
	return before.fenced && (before.isOlder() || before.isBare()) && now.fencing%tokenUnit != 0
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
func (b *Backend) announceFree(l *line) {
	b.mu.Lock()
	owner := l.freed
	l.freed = ""
	b.mu.Unlock()
	if owner != "" {
		b.notices.Publish(simba.MutexChannel(l.mutex), simba.ReleasedNotice(owner))
	}
}

// sighted takes note of when the mutex will be free and of who has it.
func (b *Backend) sighted(l *line, r row) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.token = r.token
	if r.owner != "" {
		l.last = r.owner
	}
	l.end = time.Time{}
	if r.live {
		l.end = time.Now().Add(r.left())
		l.reserved, l.freed = nil, ""
	}
	l.fails = 0
	l.lookAt = time.Now().Add(b.pause(r))
}

// began records, in the gate, a tenure that this server made. Whatever tenure it knew before has
// ended: it expired if no other version lies between.
func (b *Backend) began(l *line, t lease, reason string) {
	if e, ok := b.eventLog.Last(l.mutex); ok && e.Kind == simba.EventAcquired && e.Token < t.token {
		kind := simba.EventReleased
		last := t.asRow().versionOf(e.Token)
		if l.known && l.seen.token == e.Token {
			last = l.seen.version
		}
		if last+1 == t.version {
			kind = simba.EventExpired
		}
		b.announce([]simba.Event{{Kind: kind, Mutex: l.mutex, Owner: e.Owner, Token: e.Token}})
	}
	if b.eventLog.Announce(simba.Event{Kind: simba.EventAcquired, Mutex: l.mutex, Owner: t.owner, Token: t.token, Reason: reason}) > 0 {
		b.counts.acquired.Add(1)
	}
	l.seen = t.asRow() // if it is known at all
	b.holds(l, t)
}

// holds takes note, in the gate, of a lease that this server began or renewed.
func (b *Backend) holds(l *line, t lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.token = t.token
	b.heldLocked(l, t)
}

// guarded takes note of a renewal outside the gate. Its answer may be late: of a
// tenure that has ended meanwhile it says nothing.
func (b *Backend) guarded(l *line, t lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.token == t.token || l.token == 0 {
		b.heldLocked(l, t)
	}
}

func (b *Backend) heldLocked(l *line, t lease) {
	_, left := t.left()
	l.last, l.end, l.reserved, l.freed = t.owner, time.Now().Add(left), nil, ""
	l.lookAt = time.Now().Add(b.pause(t.asRow()))
}

// ended records, in the gate, that this server ended a tenure, and what the row is since then.
func (b *Backend) ended(l *line, was holder, now row, kind simba.EventKind, reason string) {
	if was.token == 0 {
		was.token = tokenOf(now.version-1, now.fenced) // by statements.ofAny
	}
	fresh := b.eventLog.Announce(simba.Event{Kind: kind, Mutex: l.mutex, Owner: was.owner, Token: was.token, Reason: reason}) > 0
	if fresh {
		if kind == simba.EventBroken {
			b.counts.broken.Add(1)
		} else {
			b.counts.released.Add(1)
		}
	}
	l.seen = now
	b.mu.Lock()
	defer b.mu.Unlock()
	l.token = now.token
	l.last, l.end, l.reserved, l.lookAt = was.owner, time.Time{}, nil, time.Time{}
	if fresh {
		l.freed = was.owner
	}
	delete(b.sessions, l.mutex)
}
