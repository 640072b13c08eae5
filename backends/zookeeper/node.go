package zookeeper

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// mutex is what this server knows of a mutex that it has to do with.
type mutex struct {
	name  string
	nodes map[string]*node // by contender: of this server's clients
	guids map[guid]*node   // the same by guid
	// endings says why a node that we delete goes, so that whoever sees it gone first
	// tells the same.
	endings map[guid]simba.Event
	watcher *watcher // nil = nobody wants to know
	// announced is the token of the last tenure after which all were told that the mutex is free.
	announced uint64
}

// node is a contender's latch node and its lease, as this server knows them. A node
// of this server's own session is kept by it: it alone ends the lease when its time
// is over. A foreign one, kept by another server, is here since its contender asks
// through this one.
type node struct {
	s            *session
	mutex        string
	contender    string
	guid         guid
	child        string // name of the latch node
	token        uint64 // its czxid
	foreign      bool
	bare         bool      // without a lease: a JVM's
	made         time.Time // when it was known to be there
	creator      string    // who keeps it, as records name it
	onlyOwnAhead bool      // all nodes in front are those that this server knows to be its own; guarded by Backend.mu

	// Guarded by Backend.mu. Changes to the ensemble are made by who holds the gate of
	// the node's place.
	kind           kind
	server         string // whose client last asked for it
	ttl            time.Duration
	transition     time.Duration
	binding        string
	version        int32     // of the lease node
	since          time.Time // of an owner: when its windows began
	acquiredAt     int64     // the same on the ensemble's clock
	answered       bool      // of an owner that was granted: the end of its wait has told it
	unacknowledged bool      // of an owner: granted to a waiter, and not renewed since
	over           bool      // of an owner: the lease node says that somebody was told that it is over
	presumedUntil  time.Time // of a node whose lease says asking, and not of an owner: until when others may tell that it is one's; else zero
	renewalStart   time.Time // of an owner: when the last renewal was begun, which may have been done though it had no answer
	expiresAt      time.Time // of a polling waiter: when its place lapses
	reservedUntil  time.Time // of a polling waiter whose turn it is: until when; else zero
	idle           bool      // of a polling waiter that is the first: it is nobody's turn
	listening      bool      // of a polling waiter: it can be reached through another server
	granting       bool      // of a blocked waiter: its turn is being asked for, or it is an heir
	succeeding     bool      // of a blocked waiter: the end of another's tenure is handing it the mutex
	watchAt        time.Time // when to begin to watch the lease node; zero = it is watched, or not ours to keep
	writing        bool      // a change of the lease node is under way
	writeAt        time.Time // when the lease node is to be written; zero = it is right
	forgotten      bool      // forgotten
	timer          *time.Timer
	queuedBehind   simba.Event // Owner and Token of the tenure that its contender was told of when it queued
}

// markAfter is how long the lease node of a new owner may lag behind: many leases are over
// by then, and for them a write is saved.
const ownerWriteDelay = 20 * time.Millisecond

// watchAfter is how long we keep a node before we watch what other servers do to its
// lease: most leases are over by then.
const watchDelay = 250 * time.Millisecond

func (n *node) key() nodeKey { return nodeKey{n.mutex, n.contender} }

func (n *node) end() time.Time { return n.since.Add(n.ttl + n.transition) }

// left returns what is left of an owner's windows.
func (n *node) left(now time.Time) (ttl, transition time.Duration) {
	passed := now.Sub(n.since)
	return max(0, n.ttl-passed), max(0, n.ttl+n.transition-passed)
}

// ownsLocked reports whether its contender owns the mutex.
func (n *node) ownsLocked(now time.Time) bool {
	return !n.forgotten && n.kind == kindOwner && now.Before(n.end())
}

// endedLocked reports whether its contender owned the mutex, or others may have told that it does, and does not any more.
func (n *node) endedLocked(now time.Time) bool {
	if n.kind == kindOwner {
		return !n.ownsLocked(now)
	}
	return !n.presumedUntil.IsZero() && !now.Before(n.presumedUntil)
}

// passedLocked reports whether it is of a polling waiter that is the first and whose turn
// is over.
func (n *node) missedLocked(now time.Time) bool {
	return n.kind == kindPolling && (n.idle || !n.reservedUntil.IsZero() && !now.Before(n.reservedUntil))
}

// recordLocked is what its lease node should say.
func (n *node) recordLocked(now time.Time) *record {
	r := &record{
		Mutex: n.mutex, Contender: n.contender, Kind: n.kind, Creator: n.creator, Server: n.server, TTL: n.ttl.Milliseconds(),
		Transition: n.transition.Milliseconds(), Session: n.binding, Listening: n.listening,
	}
	switch {
	case n.kind == kindOwner:
		r.Acquired, r.Over = n.acquiredAt, n.over
	case n.kind == kindPolling && !n.reservedUntil.IsZero():
		r.Reserved = max(0, n.reservedUntil.Sub(now)).Milliseconds()
	case n.kind == kindPolling:
		r.Idle = n.idle
		r.Lapse = max(0, n.expiresAt.Sub(now)).Milliseconds()
	}
	return r
}

// mutexLocked returns what is known of a mutex, beginning with nothing.
func (b *Backend) mutexLocked(name string) *mutex {
	m := b.mutexes[name]
	if m == nil {
		m = &mutex{name: name, nodes: make(map[string]*node), guids: make(map[guid]*node), endings: make(map[guid]simba.Event)}
		b.mutexes[name] = m
	}
	return m
}

func (b *Backend) tidyLocked(m *mutex) {
	if len(m.nodes) == 0 && len(m.endings) == 0 && m.watcher == nil && b.mutexes[m.name] == m {
		delete(b.mutexes, m.name)
	}
}

// nodeLocked returns the node of a contender that this server knows, nil if none.
func (b *Backend) nodeLocked(k nodeKey) *node {
	if m := b.mutexes[k.mutex]; m != nil {
		return m.nodes[k.contender]
	}
	return nil
}

func (b *Backend) nodeAt(k nodeKey) *node {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nodeLocked(k)
}

// addLocked begins to keep a node.
func (b *Backend) addLocked(n *node) {
	m := b.mutexLocked(n.mutex)
	if old := m.nodes[n.contender]; old != nil {
		b.dropLocked(old)
		m = b.mutexLocked(n.mutex)
		m.resetOwnAheadLocked()
	}
	m.nodes[n.contender], m.guids[n.guid] = n, n
	if !n.foreign {
		b.createdNodes[n.guid] = n
		n.watchAt = time.Now().Add(watchDelay)
	}
	delete(b.making, n.guid)
	b.armLocked(n)
}

// unclearLocked notes that a node was forgotten that may still be there, in front of others.
func (m *mutex) resetOwnAheadLocked() {
	for _, n := range m.nodes {
		n.onlyOwnAhead = false
	}
}

// dropLocked forgets a node. If it may still be there, the others are not clear any more.
func (b *Backend) dropLocked(n *node) {
	if n.forgotten {
		return
	}
	n.forgotten = true
	delete(b.making, n.guid)
	if b.createdNodes[n.guid] == n {
		delete(b.createdNodes, n.guid)
	}
	if n.timer != nil {
		n.timer.Stop()
	}
	if m := b.mutexes[n.mutex]; m != nil && m.nodes[n.contender] == n {
		delete(m.nodes, n.contender)
		delete(m.guids, n.guid)
		b.tidyLocked(m)
	}
}

// dueLocked returns when a node is to be tended next; false if never.
func (n *node) dueLocked() (due time.Time, ok bool) {
	earliest := func(t time.Time) {
		if !t.IsZero() && (!ok || t.Before(due)) {
			due, ok = t, true
		}
	}
	earliest(n.writeAt)
	earliest(n.watchAt)
	switch {
	case n.kind == kindOwner:
		earliest(n.end())
	case !n.reservedUntil.IsZero():
		earliest(n.reservedUntil)
	case n.kind == kindPolling:
		earliest(n.expiresAt)
	}
	return due, ok
}

// armLocked sets the alarm of a node.
func (b *Backend) armLocked(n *node) {
	due, ok := n.dueLocked()
	switch {
	case n.forgotten:
	case !ok:
		if n.timer != nil {
			n.timer.Stop()
		}
	case n.timer == nil:
		n.timer = time.AfterFunc(time.Until(due), func() { b.background(func() { b.runDue(n) }) })
	default:
		n.timer.Reset(time.Until(due))
	}
}

// tend does what is due to a node: ends its lease, its turn or its place, or writes
// what the other servers should know.
func (b *Backend) runDue(n *node) {
	ctx, cancel := context.WithTimeout(b.life, b.options.Timeout)
	defer cancel()
	unlock, err := b.lockKey(ctx, n.key())
	if err == nil {
		err = b.runDueWithLock(ctx, n)
		unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n.forgotten || b.closed {
		return
	}
	b.armLocked(n)
	if err != nil && n.timer != nil { // the ensemble cannot be asked
		n.timer.Reset(retryPause)
	}
}

func (b *Backend) runDueWithLock(ctx context.Context, n *node) error {
	b.mu.Lock()
	now := time.Now()
	var ending simba.Event
	reservationOver := false
	switch {
	case n.forgotten:
		b.mu.Unlock()
		return nil
	case n.kind == kindOwner && !now.Before(n.end()):
		ending = simba.Event{Kind: simba.EventExpired}
	case n.kind != kindOwner && !n.reservedUntil.IsZero() && !now.Before(n.reservedUntil):
		ending = simba.Event{Kind: simba.EventLeft, Reason: "missed its turn"}
		reservationOver = true
	case n.kind == kindPolling && n.reservedUntil.IsZero() && !now.Before(n.expiresAt):
		ending = simba.Event{Kind: simba.EventLeft, Reason: "lapsed"}
	}
	dirty := !n.writeAt.IsZero() && !now.Before(n.writeAt)
	watch := !n.watchAt.IsZero() && !now.Before(n.watchAt)
	foreign := n.foreign
	if ending.Kind != 0 && foreign { // its keeper ends it
		b.dropLocked(n)
		b.mu.Unlock()
		return nil
	}
	b.mu.Unlock()
	if reservationOver {
		names, err := n.s.children(ctx, n.mutex)
		if err != nil {
			return err
		}
		b.mu.Lock()
		polling := n.kind == kindPolling
		b.mu.Unlock()
		if len(names) == 1 && polling { // nobody else wants it
			b.mu.Lock()
			n.reservedUntil, n.idle = time.Time{}, true
			b.scheduleWriteLocked(n, 0)
			b.mu.Unlock()
			b.announceFree(n.mutex, true)
			return nil
		}
	}
	if ending.Kind != 0 {
		err := b.remove(ctx, n, ending, thisVersion)
		if errors.Is(err, zk.ErrBadVersion) { // another server was faster
			err = b.reload(ctx, n)
		}
		b.failWaits(n.mutex, err) // who waits behind it has no turn before it goes
		return ignoreNoNode(err)
	}
	if dirty {
		if err := ignoreNoNode(b.writeRecord(ctx, n)); err != nil {
			return err
		}
	}
	if watch {
		return b.reloadWatched(ctx, n)
	}
	return nil
}

// relook is reload of a node that has changed, as far as we know.
func (b *Backend) reloadWatched(ctx context.Context, n *node) error {
	b.mu.Lock()
	blocked := n.kind == kindBlocked && !b.elsewhereLocked(n)
	b.mu.Unlock()
	err := b.reload(ctx, n)
	if errors.Is(err, zk.ErrNoNode) && blocked { // the contender left through another server
		b.waiters.Grant(n.mutex, n.contender, proxy.Grant{})
	}
	return ignoreNoNode(err)
}

// elsewhereLocked reports whether a waiter's connection is another server's.
func (b *Backend) elsewhereLocked(n *node) bool { return n.kind == kindBlocked && n.server != b.id }

// gone passes over the error of a node that is not there any more.
func ignoreNoNode(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// markLocked has the lease node written soon, with what this server's client wants.
func (b *Backend) scheduleWriteLocked(n *node, after time.Duration) {
	n.server = b.id
	n.writeAt = time.Now().Add(after)
	b.armLocked(n)
}

// kept returns the nodes of a session that wait, and whether a lease runs.
func (b *Backend) nodesOf(s *session) (waiting []*node, held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, m := range b.mutexes {
		for _, n := range m.nodes {
			switch {
			case n.s != s || n.foreign:
			case n.ownsLocked(now):
				held = true
			default:
				waiting = append(waiting, n)
			}
		}
	}
	return waiting, held
}
