package zookeeper

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// mutex is what this server knows of a mutex.
type mutex struct {
	name  string
	nodes map[string]*node // by contender, for contenders that ask this server
	guids map[guid]*node   // the same nodes by guid
	// endings has the event of each node that this server is deleting. Any goroutine that finds the
	// node gone announces that event.
	endings map[guid]simba.Event
	watcher *watcher // nil = not needed
	// announced is a token. When a tenure with this or a smaller token has ended, announceFree
	// publishes nothing: the notice was published already, or skipFreeNotice was called.
	announced uint64
}

// node is a contender's latch node and its lease node, as this server knows them. The creator is
// the server in whose session they were created. The creator ends the lease. A foreign node was
// created by another server. This server knows it because the contender sends requests here.
type node struct {
	s            *session
	mutex        string
	contender    string
	guid         guid
	child        string // name of the latch node
	token        uint64 // czxid of the latch node
	foreign      bool
	bare         bool      // a JVM's node, without a lease node
	made         time.Time // when this server first knew that the node exists
	creator      string    // the creator's Backend.id
	onlyOwnAhead bool      // this server created all nodes ahead of this one; guarded by Backend.mu

	// Guarded by Backend.mu. Only the holder of the key's lock writes the nodes in the ensemble.
	kind           kind
	server         string // the Backend.id of the server that the contender last asked
	ttl            time.Duration
	transition     time.Duration
	binding        string    // the connection that the lease is bound to; "" = none
	version        int32     // of the lease node
	since          time.Time // of an owner: when its windows began
	acquiredAt     int64     // since on the ensemble's clock, in Unix milliseconds
	answered       bool      // of an owner that waited: Ticket.End has returned the tenure
	unacknowledged bool      // of an owner that waited: it has not renewed the lease yet
	over           bool      // of an owner: the lease node has the flag Over
	// Until presumedUntil, other servers may report the contender as the owner, because the lease
	// node says "asking". Zero = they do not.
	presumedUntil time.Time
	// renewalStart is when this server began to write an owner's last renewal. The write may have
	// succeeded without an answer.
	renewalStart  time.Time
	expiresAt     time.Time // of a polling waiter: when its queue entry expires
	reservedUntil time.Time // of a waiter: when its reservation ends; zero = none
	// idle means that a polling waiter is the first, and the mutex is not reserved for it.
	idle      bool
	listening bool // of a polling waiter: it subscribes to its own channel at another server
	granting  bool // of a blocked waiter: a grant is in progress
	// becomingOwner means that Backend.remove is granting the mutex to a blocked waiter: see
	// nextLocked.
	becomingOwner bool
	// watchAt is when to set the watch on the lease node; zero = it is set, or not needed.
	watchAt      time.Time
	writing      bool      // a write of the lease node is in progress
	writeAt      time.Time // when to write the lease node; zero = it is up to date
	forgotten    bool      // no longer in Backend.mutexes
	timer        *time.Timer
	queuedBehind simba.Event // Owner and Token in the last reply of status queued
}

// ownerWriteDelay is the time from a grant until the creator writes the lease node. Many leases are
// over by then and need no write.
const ownerWriteDelay = 20 * time.Millisecond

// watchDelay is the age of a node at which its creator begins to watch the lease node for writes of
// other servers. Most leases are over by then.
const watchDelay = 250 * time.Millisecond

func (n *node) key() nodeKey { return nodeKey{n.mutex, n.contender} }

func (n *node) end() time.Time { return n.since.Add(n.ttl + n.transition) }

func (n *node) left(now time.Time) (ttl, transition time.Duration) {
	passed := now.Sub(n.since)
	return max(0, n.ttl-passed), max(0, n.ttl+n.transition-passed)
}

// ownsLocked reports whether the node's contender owns the mutex.
func (n *node) ownsLocked(now time.Time) bool {
	return !n.forgotten && n.kind == kindOwner && now.Before(n.end())
}

// endedLocked reports whether the node's contender was the owner and its lease has ended. If other
// servers may have reported the contender as the owner, it counts as an owner: see presumedUntil.
func (n *node) endedLocked(now time.Time) bool {
	if n.kind == kindOwner {
		return !n.ownsLocked(now)
	}
	return !n.presumedUntil.IsZero() && !now.Before(n.presumedUntil)
}

// missedLocked reports whether the polling waiter of a first node missed its reservation or was
// unreachable.
func (n *node) missedLocked(now time.Time) bool {
	return n.kind == kindPolling && (n.idle || !n.reservedUntil.IsZero() && !now.Before(n.reservedUntil))
}

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
	delete(b.creating, n.guid)
	b.armLocked(n)
}

// resetOwnAheadLocked clears onlyOwnAhead of all nodes. It is called after this server has
// forgotten a node that may still exist in the ensemble, ahead of others.
func (m *mutex) resetOwnAheadLocked() {
	for _, n := range m.nodes {
		n.onlyOwnAhead = false
	}
}

// dropLocked forgets a node. If the node may still exist in the ensemble, the caller must also call
// resetOwnAheadLocked.
func (b *Backend) dropLocked(n *node) {
	if n.forgotten {
		return
	}
	n.forgotten = true
	delete(b.creating, n.guid)
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

// dueLocked returns when runDue must run next. ok is false if it need not run.
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

// runDue does what is due for a node. It ends the lease, the reservation or the queue entry, writes
// the lease node, or sets the watch.
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
	if err != nil && n.timer != nil { // the ensemble did not answer
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
	if ending.Kind != 0 && foreign { // the creator deletes the node
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
		if len(names) == 1 && polling { // nobody else wants the mutex
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
		if errors.Is(err, zk.ErrBadVersion) { // another server has written the lease node
			err = b.reload(ctx, n)
		}
		b.failWaits(n.mutex, err) // the waiters behind it depend on its deletion
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

// reloadWatched calls reload for a node whose watchAt has passed. If the contender left the queue
// through another server, reloadWatched also ends the contender's wait at this server.
func (b *Backend) reloadWatched(ctx context.Context, n *node) error {
	b.mu.Lock()
	blocked := n.kind == kindBlocked && !b.elsewhereLocked(n)
	b.mu.Unlock()
	err := b.reload(ctx, n)
	if errors.Is(err, zk.ErrNoNode) && blocked {
		b.waiters.Grant(n.mutex, n.contender, proxy.Grant{})
	}
	return ignoreNoNode(err)
}

// elsewhereLocked reports whether the waiter is blocked on a connection of another server.
func (b *Backend) elsewhereLocked(n *node) bool { return n.kind == kindBlocked && n.server != b.id }

func ignoreNoNode(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// scheduleWriteLocked schedules a write of the lease node. The write names this server as the one
// that the contender last asked.
func (b *Backend) scheduleWriteLocked(n *node, after time.Duration) {
	n.server = b.id
	n.writeAt = time.Now().Add(after)
	b.armLocked(n)
}

// nodesOf returns the nodes that this server created in a session, except those of owners. held
// reports whether it left out a node that an owner has or, as an orphan, may have by now.
func (b *Backend) nodesOf(s *session) (waiting []*node, held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k := range b.orphans {
		held = held || b.slotOf(k.mutex).session == s
	}
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
