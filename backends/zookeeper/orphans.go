package zookeeper

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/go-zookeeper/zk"
)

// maxGhosts bounds what is to be settled: beyond it the session is given up, which
// settles everything.
const maxOrphans = 10000

// haunt notes that a node must be gone, since nobody was told of it, unless another
// server has changed its lease since version; and sees to it in the background.
func (b *Backend) addOrphan(k nodeKey, g guid, version int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addOrphanLocked(k, g, version)
}

// hauntLocked is haunt in the step that forgets the node: in between, a follower would take it for a stray.
func (b *Backend) addOrphanLocked(k nodeKey, g guid, version int32) {
	if b.orphans[k] == nil {
		b.orphans[k] = make(map[guid]int32)
	}
	b.orphans[k][g] = version
	switch {
	case len(b.orphans) > maxOrphans:
		b.slotOf(k.mutex).session.end(errors.New("too many of its requests had no answer"))
	case len(b.orphans[k]) == 1 && !b.closed:
		b.all.Go(func() { b.reconcileInBackground(k) })
	}
}

// notedLocked reports whether a node is noted already, by the place that it was.
func (b *Backend) isOrphanLocked(g guid) bool {
	for _, list := range b.orphans {
		if _, noted := list[g]; noted {
			return true
		}
	}
	return false
}

// exorcise settles what is noted of a place.
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

// settle makes sure that none of the nodes that are noted for a place is there. Who
// calls it holds the gate of the place.
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

// banish deletes what there is of a node, unless its contender has gone on with it through
// another server: then it is kept.
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
		if errors.Is(err, zk.ErrNoNode) { // somebody's hand
			return ignoreNoNode(s.remove(ctx, s.latch(k.mutex, child)))
		}
		if err != nil {
			return err
		}
		rec, err := decodeRecord(lease.data)
		changed := err == nil && lease.stat.Version != version // what no server wrote goes
		if changed && rec.Over {                               // which was the last change
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

// keepGhost begins to keep a node of ours again that another server's client uses.
func (b *Backend) adoptOrphan(ctx context.Context, s *session, child string, g guid, rec record, stat *zk.Stat) error {
	if !g.tagged(s.tag) {
		return nil // it has another keeper
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

// strays looks for nodes of ours that we know nothing of: made by requests that were
// late on their way. Nobody was told of them, so they go. A listing may be older than
// what we know, so one is suspected first, in suspects, and goes when it is seen again.
// What is noted by its place is none: who settled it twice, once without the version that it had, would keep
// what has to go, or take what was kept. It reports whether there is any suspicion.
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
		if _, making := b.making[g]; making || m != nil && m.guids[g] != nil || b.isOrphanLocked(g) {
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
