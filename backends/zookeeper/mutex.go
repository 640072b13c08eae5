package zookeeper

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// mutex is what this server knows of a mutex. Only the holder of its lock changes nodes of the
// mutex, and decides who gets it by the order of the nodes. It holds the lock during I/O, but not
// while it creates a node or asks another server: see apart.
type mutex struct {
	name  string
	users int // who hold or want the lock; guarded by Backend.mu

	lock    sync.Mutex        // guards the fields below
	entries map[string]*entry // by contender
	nodes   map[guid]*entry
	watcher *watcher // nil = not needed
	freedBy string   // the owner whose tenure ended last; "" = the next free notice is not needed
	quiet   bool     // the mutex is not announced as free, unless it gets reserved
	timer   *time.Timer
	due     time.Time // when the timer calls tend; zero = never
	retryAt time.Time // when tend has to try again; zero = not
}

// entry is a latch node of this server's session, and its lease node. It is guarded by the lock of
// its mutex.
type entry struct {
	s            *session
	contender    string
	guid         guid
	child        string // name of the latch node; "" = the request has yet to decide what the entry becomes
	token        uint64 // czxid of the latch node
	made         time.Time
	onlyOwnAhead bool // this server created all nodes ahead of this one
	doomed       bool // its request has failed, so the nodes must be deleted
	// ahead is a node ahead of the latch node. The nodes are only changed while it exists, so while
	// the entry is not the first. "" = no condition
	ahead string
	state
}

// state is what a change of an entry's lease node sets.
type state struct {
	windows
	kind       kind
	since      time.Time // of an owner: when its windows began
	acquiredAt int64     // since on the ensemble's clock, in Unix milliseconds
	renewed    bool      // of an owner: its client knows of the tenure
	writeAt    time.Time // when to write the windows of a new owner; zero = not

	// Of a polling waiter.
	elsewhere     bool      // it asks through another server
	idle          bool      // its node is the first, and the mutex is not reserved for it
	expiresAt     time.Time // when its queue entry expires
	reservedUntil time.Time // when its reservation ends; zero = none
}

// windows are what a contender asks for.
type windows struct {
	ttl, transition time.Duration
	binding         string // the connection that the lease is bound to; "" = none
}

// lock returns a mutex with its lock held. The holder gives the lock up at the latest when its
// session is over.
func (b *Backend) lock(name string) *mutex {
	b.mu.Lock()
	m := b.mutexes[name]
	if m == nil {
		m = &mutex{name: name, entries: make(map[string]*entry), nodes: make(map[guid]*entry)}
		b.mutexes[name] = m
	}
	m.users++
	b.mu.Unlock()
	m.lock.Lock()
	return m
}

// unlock gives a lock up. It forgets a mutex of which nothing is known, if nobody else uses it.
func (b *Backend) unlock(m *mutex) {
	b.arm(m)
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.users--; m.users == 0 && len(m.entries) == 0 && m.watcher == nil {
		delete(b.mutexes, m.name)
	}
	m.lock.Unlock()
}

// apart runs f without the lock.
func (m *mutex) apart(f func()) {
	m.lock.Unlock()
	defer m.lock.Lock()
	f()
}

// at returns this server's entry of a latch node, or nil.
func (m *mutex) at(child string) *entry { return m.nodes[guidOf(child)] }

// entryOf returns the entry of a contender; nil = none. It returns errChanged while a request of the
// contender has yet to decide what the entry becomes, and after it has ended a lease that is over.
func (b *Backend) entryOf(ctx context.Context, m *mutex, contender string) (*entry, error) {
	n := m.entries[contender]
	switch {
	case n == nil:
		return nil, nil
	case !n.isDecided():
		return nil, errChanged
	case n.over():
		return nil, orChanged(b.remove(ctx, m, n, n.event(simba.EventExpired, ""), nil))
	}
	return n, nil
}

// owner returns the entry of the owner at this server, or nil.
func (m *mutex) owner() *entry {
	for _, n := range m.entries {
		if n.kind == kindOwner && n.isDecided() && n.s.alive() && !n.over() {
			return n
		}
	}
	return nil
}

func (m *mutex) has(n *entry) bool { return m.nodes[n.guid] == n }

func (m *mutex) add(n *entry) { m.entries[n.contender], m.nodes[n.guid] = n, n }

func (m *mutex) drop(n *entry) {
	if m.has(n) {
		delete(m.entries, n.contender)
		delete(m.nodes, n.guid)
	}
}

// markOwn marks the entries that have only nodes of this server ahead of them. names may be old,
// since new nodes come last.
func (m *mutex) markOwn(names []string) {
	for _, child := range names {
		n := m.at(child)
		if n == nil || !n.isDecided() {
			return
		}
		n.onlyOwnAhead = true
	}
}

// nextHere returns the first entry of a mutex here, if its node is certainly the first. Otherwise
// it returns nil.
func (m *mutex) nextHere() (next *entry) {
	for _, n := range m.entries {
		if n.child != "" && (next == nil || sortKey(n.child) < sortKey(next.child)) {
			next = n
		}
	}
	if next != nil && (!next.onlyOwnAhead || next.doomed) {
		return nil
	}
	return next
}

// ownerWriteDelay is the time from a grant to a waiter until the server writes the windows. Many
// leases are over by then and need no write.
const ownerWriteDelay = 20 * time.Millisecond

// isDecided reports whether the request that created an entry has decided what it becomes.
func (n *entry) isDecided() bool { return n.child != "" && !n.doomed }

func (n *entry) end() time.Time { return n.since.Add(n.ttl + n.transition) }

// over reports whether the entry is that of an owner whose lease has ended.
func (n *entry) over() bool {
	return n.kind == kindOwner && n.child != "" && !time.Now().Before(n.end())
}

// outcome returns the outcome of a request that has the lease.
func (n *entry) outcome(status simba.Status) simba.Outcome {
	passed := time.Since(n.since)
	return simba.Outcome{
		Status: status, Owner: n.contender, Token: n.token,
		TTL: max(0, n.ttl-passed), Transition: max(0, n.ttl+n.transition-passed),
	}
}

func (n *entry) record(mutex string) *record {
	r := &record{Mutex: mutex, Contender: n.contender, Kind: n.kind, TTL: n.ttl.Milliseconds(), Transition: n.transition.Milliseconds(), Idle: n.idle}
	if n.kind == kindOwner {
		r.Acquired = n.acquiredAt
	}
	return r
}

// event returns the event that ends a tenure or a wait, or that begins a tenure.
func (n *entry) event(kind simba.EventKind, reason string) simba.Event {
	e := simba.Event{Kind: kind, Owner: n.contender, Reason: reason}
	switch kind {
	case simba.EventAcquired:
		e.Token, e.At = n.token, n.acquiredAt
	case simba.EventReleased, simba.EventExpired, simba.EventBroken:
		e.Token = n.token
	}
	return e
}

// dueAt returns when tend has to do something for an entry; zero = never.
func (n *entry) dueAt() (at time.Time) {
	switch {
	case n.child == "":
	case n.doomed:
		at = time.Now()
	case n.kind == kindOwner && !n.writeAt.IsZero() && n.writeAt.Before(n.end()):
		at = n.writeAt
	case n.kind == kindOwner:
		at = n.end()
	case n.kind == kindPolling && !n.reservedUntil.IsZero():
		at = n.reservedUntil
	case n.kind == kindPolling:
		at = n.expiresAt
	}
	return at
}

// arm sets the timer to the next time at which something is due.
func (b *Backend) arm(m *mutex) {
	var due time.Time
	for _, n := range m.entries {
		if at := n.dueAt(); !at.IsZero() && n.s.alive() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	if !m.retryAt.IsZero() {
		due = m.retryAt
	}
	if due.Equal(m.due) {
		return
	}
	if m.timer != nil {
		m.timer.Stop()
	}
	if m.due = due; !due.IsZero() {
		m.timer = time.AfterFunc(time.Until(due), func() { b.tendSoon(m.name) })
	}
}

// tendSoon calls tend in the background.
func (b *Backend) tendSoon(name string) {
	b.Go(func() {
		m := b.lock(name)
		defer b.unlock(m)
		m.retryAt, m.due = time.Time{}, time.Time{}
		for _, n := range m.entries {
			b.retryLater(m, n, b.tend(m, n))
		}
	})
}

// retryLater lets tend try again after an error.
func (b *Backend) retryLater(m *mutex, n *entry, err error) {
	if err != nil && n.s.alive() {
		b.failWaits(m.name, err)
		m.retryAt = time.Now().Add(retryPause)
	}
}

// tend does what is due for an entry: it ends the lease, the reservation or the queue entry, or
// writes the windows. A blocked waiter without a ticket becomes a polling one.
func (b *Backend) tend(m *mutex, n *entry) error {
	now := time.Now()
	past := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	switch {
	case !m.has(n) || n.child == "" || !n.s.alive():
	case n.doomed:
		return b.remove(n.s.ctx, m, n, simba.Event{}, nil)
	case n.over():
		return b.remove(n.s.ctx, m, n, n.event(simba.EventExpired, ""), nil)
	case n.kind == kindOwner && past(n.writeAt):
		return b.write(n.s.ctx, m, n, nil, func(s *state) { s.writeAt = time.Time{} })
	case n.kind == kindBlocked && b.Waiters.Find(m.name, n.contender) == nil:
		return b.unblock(m, n)
	case n.kind == kindPolling && past(n.reservedUntil):
		names, err := n.s.children(n.s.ctx, m.name)
		if err != nil {
			return err
		}
		return b.skip(m, n, len(names) == 1)
	case n.kind == kindPolling && past(n.expiresAt) && n.reservedUntil.IsZero():
		return b.remove(n.s.ctx, m, n, n.event(simba.EventLeft, "lapsed"), nil)
	}
	return nil
}

// unblock makes a blocked waiter without a ticket a polling one, after its connection has closed or
// its request has failed. If its node is the first, unblock deletes it.
func (b *Backend) unblock(m *mutex, n *entry) error {
	for {
		names, err := n.s.children(n.s.ctx, m.name)
		switch i := slices.Index(names, n.child); {
		case err != nil:
			return err
		case i < 0:
			b.forgetDeleted(m, n)
			return nil
		case i == 0:
			return b.remove(n.s.ctx, m, n, n.event(simba.EventLeft, "waiter gone"), nil)
		}
		n.ahead = n.s.latch(m.name, names[0])
		err = b.demote(n.s.ctx, m, n)
		if n.ahead = ""; !errors.Is(err, errChanged) {
			return err
		}
	}
}

// serveFirst grants the mutex to the contender of the first node, or reserves it for that
// contender. only says that there is no other node.
func (b *Backend) serveFirst(m *mutex, n *entry, only bool) error {
	const elsewhere = 3 * time.Second // for a waiter that another server has to ask for
	switch {
	case !n.isDecided() || !n.s.alive(): // create and tend see to it
		return nil
	case n.kind == kindBlocked:
		return b.grant(m, n, reasonHandoff)
	case n.kind == kindOwner || !n.reservedUntil.IsZero() || n.idle && only:
		return nil
	case n.idle:
		return b.skip(m, n, false)
	}
	own := simba.ContenderChannel(m.name, n.contender)
	subscribed, window := b.Notices.Subscribed(own), b.HandoffWindow()
	if n.elsewhere {
		window = max(window, elsewhere)
	}
	if subscribed {
		b.Notices.Publish(own, simba.OfferNotice(b.lastOwner(m.name), n.contender))
	}
	if window == 0 || !subscribed && !n.elsewhere {
		return b.skip(m, n, only)
	}
	n.reservedUntil, m.quiet = time.Now().Add(window), false
	return nil
}

// skip deletes the node of a first polling waiter that missed its reservation, or cannot be reached.
// If no other contender wants the mutex, the node stays, and the waiter is idle.
func (b *Backend) skip(m *mutex, n *entry, only bool) error {
	if !only {
		return b.remove(n.s.ctx, m, n, n.event(simba.EventLeft, "missed its turn"), nil)
	}
	b.announceFree(m)
	return b.write(n.s.ctx, m, n, nil, func(s *state) { s.reservedUntil, s.idle = time.Time{}, true })
}

// grant makes a blocked waiter the owner whose node is the first. It changes no node, since the
// contender of the first node owns the mutex. Only this server deletes the node, and the session
// lives until the end of the lease: if no write has confirmed that lately, grant makes one.
func (b *Backend) grant(m *mutex, n *entry, reason string) error {
	if time.Until(n.s.giveUpAt()) < n.s.negotiated()/2 {
		if err := n.s.barrier(n.s.ctx); err != nil {
			return err
		}
	}
	t := b.Waiters.Find(m.name, n.contender)
	if t == nil { // the waiter leaves
		return b.unblock(m, n)
	}
	now := time.Now()
	n.state = state{kind: kindOwner, windows: b.windowsOf(t.Request), since: now, acquiredAt: b.clock.Latest(now), writeAt: now.Add(ownerWriteDelay)}
	b.record(m, n.event(simba.EventAcquired, reason))
	if b.Waiters.Grant(m.name, n.contender, proxy.Grant{Token: n.token, Since: now}) {
		return nil
	}
	n.doomed = true
	return b.remove(n.s.ctx, m, n, n.event(simba.EventReleased, "waiter gone"), nil)
}

const (
	reasonHandoff     = "handoff"
	reasonSessionLost = "zookeeper session lost"
)

// record records an event that this server has caused.
func (b *Backend) record(m *mutex, e simba.Event) {
	e.Mutex = m.name
	b.recordEvent(e)
	m.note(e)
}

func (b *Backend) recordEvent(e simba.Event) {
	b.SawToken(e.Token)
	if b.Events.Record(e) != 0 {
		b.Count(e)
	}
}

// note notes the beginning or the end of a tenure for announceFree. Contenders know when a lease
// expires. So no notice follows an expiry, unless the lease ended with its session.
func (m *mutex) note(e simba.Event) {
	switch e.Kind {
	case simba.EventAcquired:
		m.freedBy = ""
	case simba.EventReleased, simba.EventBroken, simba.EventExpired:
		m.freedBy, m.quiet = e.Owner, e.Kind == simba.EventExpired && e.Reason != reasonSessionLost
	}
}

// announceFree publishes that a mutex is free and has no waiter, once for each tenure.
func (b *Backend) announceFree(m *mutex) {
	if m.freedBy != "" && !m.quiet {
		b.Notices.Publish(simba.MutexChannel(m.name), simba.ReleasedNotice(m.freedBy))
	}
	m.freedBy = ""
}

// lastOwner returns the last owner of a mutex that this server knows.
func (b *Backend) lastOwner(mutex string) string {
	last, _ := b.Events.Last(mutex)
	return last.Owner
}
