package mysql

import (
	"time"

	"github.com/simba-resp/simba-resp"
)

// observe records a row that was read. It compares the row with the one that was read before, and
// announces the changes. The caller holds m.lock.
func (b *Backend) observe(m *mutexState, r row) {
	b.noteRow(m, r)
	before, known := m.seen, m.known
	m.seen, m.known = r, true
	if !known {
		// The row may show the end of a tenure that this server announced.
		e, ok := b.eventLog.Last(m.mutex)
		if !ok || e.Kind != simba.EventAcquired {
			return
		}
		before = row{owner: e.Owner, token: e.Token, version: r.versionOf(e.Token), live: true}
	}
	b.noteFreed(m, b.announceChange(m.mutex, before, r))
}

// noteFreed records the owner that released the mutex, if any, for announceFree.
func (b *Backend) noteFreed(m *mutexState, owner string) {
	if owner == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m.freedBy = owner
}

// announceChange announces what happened between two reads of a row. If it announces a release and
// the mutex is still free, it returns the owner that released it.
func (b *Backend) announceChange(mutex string, before, now row) (freed string) {
	same := sameTenure(before, now)
	var events []simba.Event
	if before.live && !(same && now.live) {
		// A release increments the version, an expiry does not.
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

// sameTenure reports whether two rows show the same tenure, or both show none.
//
// A contender on the JVM increments the version at each renewal too. So without fencing_token, two
// rows show the same tenure if they have the same owner, and the lease was running at the first
// read. With fencing_token, an owner on the JVM may have got a token of its own only after the
// first read.
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

// announceFree publishes that a mutex was released, once for each release. The caller holds m.lock,
// and has found neither an owner nor a next waiter.
func (b *Backend) announceFree(m *mutexState) {
	b.mu.Lock()
	owner := m.freedBy
	m.freedBy = ""
	b.mu.Unlock()
	if owner != "" {
		b.notices.Publish(simba.MutexChannel(m.mutex), simba.ReleasedNotice(owner))
	}
}

// noteRow records the owner and the end of its lease, and schedules the next refresh.
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

// recordBegin records and announces a tenure that this server granted. First it announces the end
// of the last announced tenure. This end is an expiry if the new tenure has the next version, and
// otherwise a release. The caller holds m.lock.
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
	m.seen = t.asRow() // observe uses it only if m.known is true
	b.noteLease(m, t)
}

// noteLease records a lease that this server granted or renewed. The caller holds m.lock.
func (b *Backend) noteLease(m *mutexState, t lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.token = t.token
	b.noteLeaseLocked(m, t)
}

// noteRenewal records a renewal by a caller that does not hold m.lock. Its answer may be late, so
// noteRenewal ignores a tenure that is not the last known one.
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

// recordEnd records and announces the end of a tenure that this server ended. now is the row after
// the end. The caller holds m.lock.
func (b *Backend) recordEnd(m *mutexState, was holder, now row, kind simba.EventKind, reason string) {
	if was.token == 0 {
		was.token = tokenOf(now.version-1, now.fenced) // statements.ofAny matched this token
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
