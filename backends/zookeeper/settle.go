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
const maxGhosts = 10000

// haunt notes that a node must be gone, since nobody was told of it, unless another
// server has changed its lease since version; and sees to it in the background.
func (b *Backend) haunt(p place, g guid, version int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hauntLocked(p, g, version)
}

// hauntLocked is haunt in the step that forgets the node: in between, a follower would take it for a stray.
func (b *Backend) hauntLocked(p place, g guid, version int32) {
	if b.ghosts[p] == nil {
		b.ghosts[p] = make(map[guid]int32)
	}
	b.ghosts[p][g] = version
	switch {
	case len(b.ghosts) > maxGhosts:
		b.lane(p.mutex).session.end(errors.New("too many of its requests had no answer"))
	case len(b.ghosts[p]) == 1 && !b.closed:
		b.all.Go(func() { b.exorcise(p) })
	}
}

// notedLocked reports whether a node is noted already, by the place that it was.
func (b *Backend) notedLocked(g guid) bool {
	for _, list := range b.ghosts {
		if _, noted := list[g]; noted {
			return true
		}
	}
	return false
}

// exorcise settles what is noted of a place.
func (b *Backend) exorcise(p place) {
	for b.haunted(p) {
		if b.tryExorcise(p) != nil && !b.pause(retryPause) {
			return
		}
	}
}

func (b *Backend) tryExorcise(p place) error {
	ctx, cancel := context.WithTimeout(b.life, b.options.Timeout)
	defer cancel()
	s, err := b.current(ctx, p.mutex)
	if err != nil {
		return err
	}
	open, err := b.hold(ctx, p)
	if err != nil {
		return err
	}
	defer open()
	return b.settle(ctx, s, p)
}

func (b *Backend) haunted(p place) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ghosts[p]) != 0
}

// settle makes sure that none of the nodes that are noted for a place is there. Who
// calls it holds the gate of the place.
func (b *Backend) settle(ctx context.Context, s *session, p place) error {
	b.mu.Lock()
	list := maps.Clone(b.ghosts[p])
	b.mu.Unlock()
	for g, version := range list {
		if err := b.banish(ctx, s, p, g, version); err != nil {
			return err
		}
		b.mu.Lock()
		if delete(b.ghosts[p], g); len(b.ghosts[p]) == 0 {
			delete(b.ghosts, p)
		}
		b.mu.Unlock()
	}
	return nil
}

// banish deletes what there is of a node, unless its contender has gone on with it through
// another server: then it is kept.
func (b *Backend) banish(ctx context.Context, s *session, p place, g guid, version int32) error {
	for {
		child, err := s.find(ctx, p.mutex, g)
		if err != nil {
			return err
		}
		if child == "" {
			return gone(s.remove(ctx, s.lease(g)))
		}
		lease, err := s.get(ctx, s.lease(g))
		if errors.Is(err, zk.ErrNoNode) { // somebody's hand
			return gone(s.remove(ctx, s.latch(p.mutex, child)))
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
			return b.keepGhost(ctx, s, child, g, rec, &lease.stat)
		}
		n := &node{s: s, mutex: p.mutex, guid: g, child: child}
		if _, _, err = s.delete(ctx, n, lease.stat.Version, nil, false); !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
}

// keepGhost begins to keep a node of ours again that another server's client uses.
func (b *Backend) keepGhost(ctx context.Context, s *session, child string, g guid, rec record, stat *zk.Stat) error {
	if !g.tagged(s.tag) {
		return nil // it has another keeper
	}
	latch, err := s.get(ctx, s.latch(rec.Mutex, child))
	if err != nil {
		return gone(err)
	}
	n := &node{
		s: s, mutex: rec.Mutex, contender: rec.Contender, guid: g, child: child, token: uint64(latch.stat.Czxid), made: time.Now(),
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.adoptLocked(n, rec, stat)
	b.addLocked(n)
	if n.kind != kindOwner {
		b.followLocked(n.mutex).again()
	}
	return nil
}

// strays looks for nodes of ours that we know nothing of: made by requests that were
// late on their way. Nobody was told of them, so they go. A listing may be older than
// what we know, so one is suspected first, in suspects, and goes when it is seen again.
// What is noted by its place is none: who settled it twice, once without the version that it had, would keep
// what has to go, or take what was kept. It reports whether there is any suspicion.
func (b *Backend) strays(s *session, mutex string, children []string, suspects map[guid]bool) bool {
	seen := make(map[guid]bool)
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.mutexes[mutex]
	for _, child := range children {
		g := guidOf(child)
		if !g.tagged(s.tag) {
			continue
		}
		if _, making := b.making[g]; making || m != nil && m.guids[g] != nil || b.notedLocked(g) {
			continue
		}
		seen[g] = true
		if suspects[g] {
			b.hauntLocked(place{mutex, ""}, g, 0)
		}
	}
	clear(suspects)
	maps.Copy(suspects, seen)
	return len(seen) != 0
}
