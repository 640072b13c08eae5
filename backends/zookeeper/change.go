package zookeeper

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
)

// This file has all writes of latch nodes and leases. The caller holds the key's lock. Each
// function retries until the outcome is known or ctx ends. After that, an unknown outcome is
// reconciled in the background.

// condition says when a node may be deleted.
type condition uint8

const (
	thisVersion condition = iota // the node's lease has not changed
	// asWaiter also requires that the node's contender waits and is not being granted the mutex.
	asWaiter
)

// creation is the result of create.
type creation struct {
	node *node
	only bool // it was the only node
}

// create creates a latch node and its lease in one step. The same step writes the mutex' node. So
// its answer also has the number of nodes, the zxid and the leader's clock.
func (b *Backend) create(ctx context.Context, s *session, k nodeKey, rec *record) (c creation, err error) {
	g := newGUID(k.contender, s.tag)
	b.mu.Lock()
	b.creating[g] = struct{}{}
	b.mu.Unlock()
	defer func() {
		if c.node == nil {
			b.mu.Lock()
			delete(b.creating, g)
			b.mu.Unlock()
		}
	}()
	n := &node{
		s: s, mutex: k.mutex, contender: k.contender, guid: g, kind: kindPolling, creator: b.id, server: b.id, binding: rec.Session,
		ttl: millis(rec.TTL), transition: millis(rec.Transition),
	}
	defer func() {
		if c.node != nil && rec.Kind == kindAsking {
			n.presumedUntil = n.end()
		}
	}()
	data := rec.encode()
	for {
		start := time.Now()
		res, err := s.multi(ctx,
			&zk.CreateRequest{Path: s.newLatch(k.mutex, g), Data: []byte(k.contender), Acl: s.acl, Flags: zk.FlagEphemeralSequential},
			&zk.CreateRequest{Path: s.lease(g), Data: data, Acl: s.acl, Flags: zk.FlagEphemeral},
			&zk.SetDataRequest{Path: s.mutex(k.mutex), Version: -1})
		switch {
		case err == nil:
			n.since = start // no earlier attempt succeeded
			stat := res[2].Stat
			b.clock.observe(stat.Mtime, start, time.Now())
			n.child, n.token, n.acquiredAt = res[0].String[len(s.mutex(k.mutex))+1:], uint64(stat.Mzxid), stat.Mtime
			n.made = time.Now()
			return creation{n, stat.NumChildren == 1}, nil
		case errors.Is(err, zk.ErrNoNode):
			if err = s.ensure(ctx, k.mutex); err == nil {
				continue
			}
			return c, err
		case errors.Is(err, zk.ErrNodeExists): // an earlier attempt arrived late
		case certain(err), outOfQuota(err):
			return c, err
		}
		if !s.alive() {
			return c, errSessionOver
		}
		if n.since.IsZero() { // any attempt may have succeeded, and other servers count from there
			n.since = start
		}
		found, err := b.findCreated(ctx, s, n)
		switch {
		case err != nil:
			b.addOrphan(k, g, 0)
			return c, err
		case found:
			return creation{n, false}, nil
		}
	}
}

// findCreated looks for a node by its guid, after its creation had no answer.
func (b *Backend) findCreated(ctx context.Context, s *session, n *node) (found bool, err error) {
	child, err := s.find(ctx, n.mutex, n.guid)
	if err != nil || child == "" {
		return false, err
	}
	latch, err := s.get(ctx, s.latch(n.mutex, child))
	if err != nil {
		return false, err
	}
	n.child, n.token, n.acquiredAt = child, uint64(latch.stat.Czxid), latch.stat.Ctime
	n.made = time.Now()
	return true, nil
}

// find returns the name of the latch node with a guid, "" if there is none.
func (s *session) find(ctx context.Context, mutex string, g guid) (child string, err error) {
	if err := s.sync(ctx, s.mutexes()); err != nil {
		return "", err
	}
	names, err := s.children(ctx, mutex)
	if err != nil {
		return "", err
	}
	if i := slices.IndexFunc(names, func(c string) bool { return guidOf(c) == g }); i >= 0 {
		return names[i], nil
	}
	return "", nil
}

// renew makes a node the owner's, and begins both windows again with the given durations. It
// returns zk.ErrNoNode if the node is gone, and forgets it. It returns errChanged if the lease has
// ended by this server's clock, or others may have reported its end.
func (b *Backend) renew(ctx context.Context, n *node, ttl, transition time.Duration, binding string) error {
	return b.writeOwner(ctx, n, ttl, transition, binding, false)
}

// writeOwner is renew. For the request that created the node (made), the windows begin with the
// creation if others may have reported them so.
func (b *Backend) writeOwner(ctx context.Context, n *node, ttl, transition time.Duration, binding string, made bool) error {
	first := time.Now()
	for {
		b.mu.Lock()
		now := time.Now()
		over := n.endedLocked(now)
		begun := made && !n.presumedUntil.IsZero()
		rec, version := n.recordLocked(now), n.version
		rec.Acquired = 0
		if begun {
			rec.Acquired = n.acquiredAt
		}
		if !over {
			n.renewalStart = first
		}
		b.mu.Unlock()
		if over {
			return errChanged
		}
		rec.Kind, rec.Creator, rec.Server, rec.TTL, rec.Transition, rec.Session = kindOwner, n.creator, b.id, ttl.Milliseconds(), transition.Milliseconds(), binding
		rec.Over, rec.Idle, rec.Lapse, rec.Reserved = false, false, 0, 0
		start := time.Now()
		stat, err := b.write(ctx, n, rec, version)
		if err == nil {
			b.clock.observe(stat.Mtime, start, time.Now())
			b.mu.Lock()
			n.kind, n.server, n.ttl, n.transition, n.binding = kindOwner, b.id, ttl, transition, binding
			if !begun {
				n.since, n.acquiredAt = start, stat.Mtime
			}
			n.version, n.presumedUntil = stat.Version, time.Time{}
			n.reservedUntil, n.idle, n.writeAt, n.unacknowledged, n.over = time.Time{}, false, time.Time{}, false, false
			b.armLocked(n)
			b.mu.Unlock()
			return nil
		}
		if err := b.retryWrite(ctx, n, err); err != nil {
			return err
		}
	}
}

// writeRecord writes the node's state to its lease node, for the other servers.
func (b *Backend) writeRecord(ctx context.Context, n *node) error {
	for {
		b.mu.Lock()
		rec, version, asked := n.recordLocked(time.Now()), n.version, n.writeAt
		b.mu.Unlock()
		stat, err := b.write(ctx, n, rec, version)
		if err == nil {
			b.mu.Lock()
			n.version, n.presumedUntil = stat.Version, time.Time{}
			if n.writeAt.Equal(asked) {
				n.writeAt = time.Time{}
			}
			b.mu.Unlock()
			return nil
		}
		if err := b.retryWrite(ctx, n, err); err != nil {
			return err
		}
		b.mu.Lock()
		dirty := !n.writeAt.IsZero()
		b.mu.Unlock()
		if !dirty {
			return nil
		}
	}
}

// write changes a lease node if the latch node exists and the lease node has this version.
func (b *Backend) write(ctx context.Context, n *node, rec *record, version int32) (*zk.Stat, error) {
	b.mu.Lock()
	n.writing = true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		n.writing = false
		b.mu.Unlock()
	}()
	return n.s.change(ctx, n, rec, version)
}

// change is write for a node that need not be a known one.
func (s *session) change(ctx context.Context, n *node, rec *record, version int32) (*zk.Stat, error) {
	res, err := s.multi(ctx,
		&zk.CheckVersionRequest{Path: s.latch(n.mutex, n.child), Version: -1},
		&zk.SetDataRequest{Path: s.lease(n.guid), Data: rec.encode(), Version: version})
	if err != nil {
		return nil, err
	}
	return res[1].Stat, nil
}

// retryWrite handles the error of a write. It returns nil if the write should be tried again.
func (b *Backend) retryWrite(ctx context.Context, n *node, err error) error {
	switch {
	case errors.Is(err, zk.ErrBadVersion):
		return b.reload(ctx, n)
	case errors.Is(err, zk.ErrNoNode):
		b.forgetDeleted(n)
		return zk.ErrNoNode
	case certain(err):
		return err
	case !n.s.alive():
		return errSessionOver
	case ctx.Err() != nil:
		return err
	}
	return nil // the connection broke: the version shows whether the write was done
}

// reload reads a node's lease. It adopts what another server has written. It also adopts an earlier
// write of this server that had no answer. It also sets a watch if this server created the node.
func (b *Backend) reload(ctx context.Context, n *node) error {
	read := n.s.get
	if !n.foreign {
		read = n.s.getAndWatch
	}
	lease, err := read(ctx, n.s.lease(n.guid))
	if errors.Is(err, zk.ErrNoNode) {
		b.forgetDeleted(n)
	}
	if err != nil {
		return err
	}
	rec, err := decodeRecord(lease.data)
	if err != nil && n.foreign {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n.watchAt = time.Time{}
	if err != nil { // no server wrote that: write the known state again
		n.version = lease.stat.Version
		b.scheduleWriteLocked(n, 0)
		return nil
	}
	if lease.stat.Version != n.version {
		if rec.Server == b.id { // an earlier write of this server: the known state is newer
			n.version, n.listening, n.over = lease.stat.Version, rec.Listening, rec.Over && n.kind == kindOwner
			if rec.Kind != kindAsking && rec.Kind != kindOwner {
				n.presumedUntil = time.Time{}
			}
			// But a renewal without an answer has begun other windows.
			if began := rec.began(&lease.stat); began != n.acquiredAt && n.kind == kindOwner && rec.Kind == kindOwner && !n.renewalStart.IsZero() {
				n.since, n.acquiredAt = n.renewalStart, began
				n.ttl, n.transition, n.binding, n.unacknowledged = millis(rec.TTL), millis(rec.Transition), rec.Session, false
			}
		} else {
			b.adoptLocked(n, rec, &lease.stat)
			if n.kind == kindPolling && b.waitsLocked(n.key()) {
				// The contender moved to this server. Its last server wrote only later that nobody
				// waits there.
				n.kind, n.reservedUntil, n.idle = kindBlocked, time.Time{}, false
				b.scheduleWriteLocked(n, 0)
			}
		}
		if m := b.mutexes[n.mutex]; m != nil && m.watcher != nil {
			m.watcher.wake()
		}
	}
	b.armLocked(n)
	return nil
}

// leaseChanged is called by the library when a watched lease node has changed. It only sets the
// timer.
func (b *Backend) leaseChanged(g guid) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.createdNodes[g]
	if n == nil {
		return
	}
	if m := b.mutexes[n.mutex]; m != nil {
		if _, ending := m.endings[g]; ending {
			return
		}
	}
	n.watchAt = time.Now()
	if n.writing { // probably a write of this server
		n.watchAt = n.watchAt.Add(watchDelay)
	}
	b.armLocked(n)
}

// adoptLocked sets a node to what its lease says. If another server renewed it, the creator counts
// the windows from when it learns of that. So the windows are never too short, and never depend on
// the ensemble's clock. The flag Over changes nothing for a server that counts the same lease
// already.
func (b *Backend) adoptLocked(n *node, rec record, stat *zk.Stat) {
	now := time.Now()
	since := now
	switch known := n.kind == kindOwner && n.acquiredAt == rec.began(stat); {
	case rec.Over && n.foreign:
		since = now.Add(-millis(rec.TTL + rec.Transition))
	case rec.Over && known:
		since = n.since
	}
	n.version = stat.Version
	n.kind, n.creator, n.server = rec.Kind, rec.Creator, rec.Server
	n.ttl, n.transition, n.binding, n.listening = millis(rec.TTL), millis(rec.Transition), rec.Session, rec.Listening
	n.since, n.acquiredAt, n.over = since, rec.began(stat), rec.Over
	n.idle, n.unacknowledged, n.writeAt, n.reservedUntil, n.presumedUntil = rec.Idle, false, time.Time{}, time.Time{}, time.Time{}
	switch {
	case rec.Kind == kindPolling && rec.Reserved > 0:
		n.reservedUntil = now.Add(millis(rec.Reserved))
	case rec.Kind == kindPolling:
		n.expiresAt = now.Add(max(millis(rec.Lapse), b.QueueGrace()))
	}
}

// forgetDeleted forgets a node that the ensemble no longer has. If this server created it, its
// lease is deleted too.
func (b *Backend) forgetDeleted(n *node) {
	b.mu.Lock()
	if n.forgotten {
		b.mu.Unlock()
		return
	}
	owner, version := n.kind == kindOwner && !n.foreign, n.version
	b.dropLocked(n)
	if m := b.mutexes[n.mutex]; m != nil {
		m.resetOwnAheadLocked() // its latch node may still exist
	}
	if !n.foreign { // else its creator does that
		b.addOrphanLocked(n.key(), n.guid, version)
	}
	b.mu.Unlock()
	if owner {
		b.announceEnd(simba.Event{
			Kind: simba.EventReleased, Mutex: n.mutex, Owner: n.contender, Token: n.token, Reason: "through another server",
		})
	}
}
