package zookeeper

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
)

// This file has the requests that create or change latch nodes and lease nodes. The caller holds
// the key's lock. Each function retries until the outcome is known or ctx ends. If ctx ends
// first, the server reconciles the unknown outcome in the background.

// condition says when remove may delete a node.
type condition uint8

const (
	thisVersion condition = iota // the lease node has the version that this server knows
	// asWaiter also requires that the contender still waits, and that no grant is in progress.
	asWaiter
)

type creation struct {
	node *node
	only bool // it was the mutex's only latch node
}

// create creates a latch node and its lease node in one step. The step also writes the mutex's node.
// So the answer has the number of latch nodes, the zxid and the leader's clock.
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
		case certain(err):
			return c, err
		}
		if !s.alive() {
			return c, errSessionOver
		}
		if n.since.IsZero() { // any attempt may have succeeded: count from the first
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

// findCreated looks for a node by its guid, after the request to create it had no answer.
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

// renew makes a node the owner's, and begins both windows again with the given durations. If the
// node is gone, renew forgets it and returns zk.ErrNoNode. It returns errChanged if the lease has
// ended by this server's clock, or if other servers may have reported its end.
func (b *Backend) renew(ctx context.Context, n *node, ttl, transition time.Duration, binding string) error {
	return b.writeOwner(ctx, n, ttl, transition, binding, false)
}

// writeOwner is like renew. made is true if the request that is in progress has created the node.
// Other servers may then have reported the contender as the owner already, with windows from the
// creation on. In that case writeOwner keeps these windows.
func (b *Backend) writeOwner(ctx context.Context, n *node, ttl, transition time.Duration, binding string, made bool) error {
	first := time.Time{}
	for {
		start, err := b.vouch(ctx, n, ttl+transition)
		if err != nil {
			return err
		}
		if first.IsZero() {
			first = start
		}
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

// change makes the request of write. The node need not be one that this server knows.
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
	return nil // if this write was done, the next attempt fails with ErrBadVersion
}

// reload reads the lease node. It adopts a write of another server, and a renewal of this server
// that had no answer. If this server created the node, reload also sets a watch on the lease node.
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
	if err != nil { // no server writes such data: write the known state again
		n.version = lease.stat.Version
		b.scheduleWriteLocked(n, 0)
		return nil
	}
	if lease.stat.Version != n.version {
		if rec.Server == b.id { // this server's own write: the known state is newer
			n.version, n.listening, n.over = lease.stat.Version, rec.Listening, rec.Over && n.kind == kindOwner
			if rec.Kind != kindAsking && rec.Kind != kindOwner {
				n.presumedUntil = time.Time{}
			}
			// But a renewal that had no answer has begun other windows.
			if began := rec.began(&lease.stat); began != n.acquiredAt && n.kind == kindOwner && rec.Kind == kindOwner && !n.renewalStart.IsZero() {
				n.since, n.acquiredAt = n.renewalStart, began
				n.ttl, n.transition, n.binding, n.unacknowledged = millis(rec.TTL), millis(rec.Transition), rec.Session, false
			}
		} else {
			b.adoptLocked(n, rec, &lease.stat)
			if n.kind == kindPolling && b.waitsLocked(n.key()) {
				// The contender is blocked at this server. The write of its former server arrived
				// late.
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

// The library calls leaseChanged when a watched lease node has changed. leaseChanged only sets the
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

// adoptLocked sets a node to the state in its record. If another server renewed the lease, this
// server counts the windows from now. So it never ends the lease too early, and does not depend on
// the ensemble's clock. If the record has the flag Over, the lease of a foreign node counts as
// ended. The creator keeps windows that it counts already.
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

// forgetDeleted forgets a node that the ensemble no longer has. Its latch node or its lease may
// still exist. If this server created them, forgetDeleted makes them an orphan, which is deleted
// later.
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
	if !n.foreign { // else the creator does that
		b.addOrphanLocked(n.key(), n.guid, version)
	}
	b.mu.Unlock()
	if owner {
		b.announceEnd(simba.Event{
			Kind: simba.EventReleased, Mutex: n.mutex, Owner: n.contender, Token: n.token, Reason: "through another server",
		})
	}
}
