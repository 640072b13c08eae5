package zookeeper

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/go-zookeeper/zk"
)

// maxOrphans bounds the contenders that have orphans. Above that, the server gives up the session
// of the newest orphan's mutex. The ensemble then deletes all nodes of that session.
const maxOrphans = 10000

// addOrphan records a node that no client knows of, and starts its deletion in the background. If
// another server has changed the lease node since version, the node is kept.
func (b *Backend) addOrphan(k nodeKey, g guid, version int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addOrphanLocked(k, g, version)
}

// addOrphanLocked is addOrphan for a caller that forgets the node in the same step. Otherwise a
// watcher could see an unknown node in between.
func (b *Backend) addOrphanLocked(k nodeKey, g guid, version int32) {
	if b.orphans[k] == nil {
		b.orphans[k] = make(map[guid]int32)
	}
	b.orphans[k][g] = version
	switch {
	case len(b.orphans) > maxOrphans:
		b.slotOf(k.mutex).session.end(errors.New("too many requests of the session had no answer"))
	case len(b.orphans[k]) == 1 && !b.closed:
		b.all.Go(func() { b.reconcileInBackground(k) })
	}
}

func (b *Backend) isOrphanLocked(g guid) bool {
	for _, list := range b.orphans {
		if _, noted := list[g]; noted {
			return true
		}
	}
	return false
}

func (b *Backend) reconcileInBackground(k nodeKey) {
	for b.hasOrphans(k) {
		if b.tryReconcile(k) != nil && !b.pause(retryPause) {
			return
		}
	}
}

func (b *Backend) tryReconcile(k nodeKey) error {
	ctx, cancel := context.WithTimeout(b.life, b.options.Timeout)
	defer cancel()
	s, err := b.current(ctx, k.mutex)
	if err != nil {
		return err
	}
	unlock, err := b.lockKey(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	return b.reconcile(ctx, s, k)
}

func (b *Backend) hasOrphans(k nodeKey) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.orphans[k]) != 0
}

// reconcile deletes the orphans of a key, unless their contenders use them. The caller holds the
// key's lock.
func (b *Backend) reconcile(ctx context.Context, s *session, k nodeKey) error {
	b.mu.Lock()
	list := maps.Clone(b.orphans[k])
	b.mu.Unlock()
	for g, version := range list {
		if err := b.deleteOrphan(ctx, s, k, g, version); err != nil {
			return err
		}
		b.mu.Lock()
		if delete(b.orphans[k], g); len(b.orphans[k]) == 0 {
			delete(b.orphans, k)
		}
		b.mu.Unlock()
	}
	return nil
}

// deleteOrphan deletes an orphan's nodes, unless the contender has continued with them through
// another server.
func (b *Backend) deleteOrphan(ctx context.Context, s *session, k nodeKey, g guid, version int32) error {
	for {
		child, err := s.find(ctx, k.mutex, g)
		if err != nil {
			return err
		}
		if child == "" {
			return ignoreNoNode(s.remove(ctx, s.lease(g)))
		}
		lease, err := s.get(ctx, s.lease(g))
		if errors.Is(err, zk.ErrNoNode) { // deleted by hand
			return ignoreNoNode(s.remove(ctx, s.latch(k.mutex, child)))
		}
		if err != nil {
			return err
		}
		rec, err := decodeRecord(lease.data)
		// A record that no server writes does not count as a change.
		changed := err == nil && lease.stat.Version != version
		if changed && rec.Over { // writing Over was the last change
			changed = lease.stat.Version-1 != version
		}
		if changed && rec.Server != b.id {
			return b.adoptOrphan(ctx, s, child, g, rec, &lease.stat)
		}
		n := &node{s: s, mutex: k.mutex, guid: g, child: child}
		if _, _, err = s.delete(ctx, n, lease.stat.Version, nil, false); !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
}

// adoptOrphan makes an orphan of this server a known node again, because its contender uses it
// through another server.
func (b *Backend) adoptOrphan(ctx context.Context, s *session, child string, g guid, rec record, stat *zk.Stat) error {
	if !g.tagged(s.tag) {
		return nil // another server created it
	}
	latch, err := s.get(ctx, s.latch(rec.Mutex, child))
	if err != nil {
		return ignoreNoNode(err)
	}
	n := &node{
		s: s, mutex: rec.Mutex, contender: rec.Contender, guid: g, child: child, token: uint64(latch.stat.Czxid), made: time.Now(),
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.adoptLocked(n, rec, stat)
	b.addLocked(n)
	if n.kind != kindOwner {
		b.watcherLocked(n.mutex).wake()
	}
	return nil
}

// orphanUnknownNodes looks for nodes of this session that this server does not know. Requests that
// arrived late have created them, and no client knows of them. A listing may be older than the
// state of this server. So an unknown node first becomes a suspect, and an orphan when it is listed
// again. A recorded orphan is skipped: a second record would lack the known version.
// orphanUnknownNodes reports whether there are suspects.
func (b *Backend) orphanUnknownNodes(s *session, mutex string, children []string, suspects map[guid]bool) bool {
	seen := make(map[guid]bool)
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.mutexes[mutex]
	for _, child := range children {
		g := guidOf(child)
		if !g.tagged(s.tag) {
			continue
		}
		if _, creating := b.creating[g]; creating || m != nil && m.guids[g] != nil || b.isOrphanLocked(g) {
			continue
		}
		seen[g] = true
		if suspects[g] {
			b.addOrphanLocked(nodeKey{mutex, ""}, g, 0)
		}
	}
	clear(suspects)
	maps.Copy(suspects, seen)
	return len(seen) != 0
}
