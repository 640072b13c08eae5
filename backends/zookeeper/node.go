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
	nodes map[string]*node // by contender: nodes of this server's clients
	guids map[guid]*node   // the same nodes by guid
	// endings has the event of each node that this server is deleting, so that any goroutine that
	// finds the node gone announces the same event.
	endings map[guid]simba.Event
	watcher *watcher // nil = not needed
	// announced is the token of the last tenure after which the mutex was announced as free.
	announced uint64
}

// node is a contender's latch node and its lease, as this server knows them. The server in whose
// session a node was created is its creator, and only the creator ends its lease. A foreign node
// has another creator. This server knows it because its contender asks here.
type node struct {
	s            *session
	mutex        string
	contender    string
	guid         guid
	child        string // name of the latch node
	token        uint64 // its czxid
	foreign      bool
	bare         bool      // a JVM's, without a lease
	made         time.Time // when this server first knew that the node exists
	creator      string    // id of the creator, as in records
	onlyOwnAhead bool      // this server created all nodes ahead of it; guarded by Backend.mu

	// Guarded by Backend.mu. Only the holder of the key's lock changes the ensemble.
	kind           kind
	server         string // the server whose client last asked for the mutex by this node
	ttl            time.Duration
	transition     time.Duration
	binding        string
	version        int32     // of the lease node
	since          time.Time // of an owner: when its windows began
	acquiredAt     int64     // the same on the ensemble's clock
	answered       bool      // of a granted owner: Ticket.End has returned the tenure
	unacknowledged bool      // of an owner: granted to a waiter, and not renewed since
	over           bool      // of an owner: the lease node says that the lease has ended
	// Until presumedUntil, others may report a node with an "asking" record as an owner's. It is
	// zero for other nodes.
	presumedUntil time.Time
	// renewalStart is when an owner's last renewal began. The renewal may have succeeded without an
	// answer.
	renewalStart  time.Time
	expiresAt     time.Time // of a polling waiter: when its entry expires
	reservedUntil time.Time // of a polling waiter for which the mutex is reserved; else zero
	// idle means that a polling waiter is the first, and the mutex is not reserved for it.
	idle          bool
	listening     bool // of a polling waiter: it subscribes at another server
	granting      bool // of a blocked waiter: it is being granted the mutex
	becomingOwner bool // of a blocked waiter: the end of another's tenure grants it the mutex
	// watchAt is when to set the watch on the lease node; zero = it is set, or not needed.
	watchAt      time.Time
	writing      bool      // a write of the lease node is in progress
	writeAt      time.Time // when to write the lease node; zero = it is up to date
	forgotten    bool      // it is no longer in Backend.mutexes
	timer        *time.Timer
	queuedBehind simba.Event // Owner and Token of the tenure in the reply that queued it
}

// ownerWriteDelay is how late the lease node of a new owner is written. Many leases are over by
// then and need no write.
const ownerWriteDelay = 20 * time.Millisecond

// watchDelay is the age of a node at which its creator begins to watch what other servers do to its
// lease. Most leases are over by then.
const watchDelay = 250 * time.Millisecond

func (n *node) key() nodeKey { return nodeKey{n.mutex, n.contender} }

func (n *node) end() time.Time { return n.since.Add(n.ttl + n.transition) }

// left returns what is left of an owner's windows.
func (n *node) left(now time.Time) (ttl, transition time.Duration) {
	passed := now.Sub(n.since)
	return max(0, n.ttl-passed), max(0, n.ttl+n.transition-passed)
}

// ownsLocked reports whether the node's contender owns the mutex.
func (n *node) ownsLocked(now time.Time) bool {
	return !n.forgotten && n.kind == kindOwner && now.Before(n.end())
}

// endedLocked reports whether the node's contender was the owner and its lease has ended. A
// contender that others may have reported as the owner counts too.
func (n *node) endedLocked(now time.Time) bool {
	if n.kind == kindOwner {
		return !n.ownsLocked(now)
	}
	return !n.presumedUntil.IsZero() && !now.Before(n.presumedUntil)
}

// missedLocked reports whether a first node belongs to a polling waiter that missed its
// reservation.
func (n *node) missedLocked(now time.Time) bool {
	return n.kind == kindPolling && (n.idle || !n.reservedUntil.IsZero() && !now.Before(n.reservedUntil))
}

// recordLocked returns the record for its lease node.
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

// mutexLocked returns the state of a mutex, creating an empty one if there is none.
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

// nodeLocked returns the contender's node if this server knows it, else nil.
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

// addLocked adds a node to the known ones.
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

// resetOwnAheadLocked is called when a forgotten node may still exist ahead of others.
func (m *mutex) resetOwnAheadLocked() {
	for _, n := range m.nodes {
		n.onlyOwnAhead = false
	}
}

// dropLocked forgets a node. If it may still exist, the caller also calls resetOwnAheadLocked.
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

// dueLocked returns when runDue is to run next; false = never.
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

// armLocked sets the timer of a node.
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

// runDueWithLock is runDue for a caller that holds the key's lock.
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
	if ending.Kind != 0 && foreign { // its creator ends it
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
		if errors.Is(err, zk.ErrBadVersion) { // another server was faster
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

// reloadWatched is reload after a watch has fired.
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

// elsewhereLocked reports whether the waiter is blocked on a connection of another server.
func (b *Backend) elsewhereLocked(n *node) bool { return n.kind == kindBlocked && n.server != b.id }

// ignoreNoNode returns nil for zk.ErrNoNode, else err.
func ignoreNoNode(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// scheduleWriteLocked schedules a write of the lease node, with the windows that this server's
// client wants.
func (b *Backend) scheduleWriteLocked(n *node, after time.Duration) {
	n.server = b.id
	n.writeAt = time.Now().Add(after)
	b.armLocked(n)
}

// nodesOf returns the waiting nodes of a session, and whether any of its leases is running.
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
