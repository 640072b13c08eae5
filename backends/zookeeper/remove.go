package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
)

// remove deletes a node and tells why, if that is known to have been done; or
// returns zk.ErrNoNode if it was gone, zk.ErrBadVersion if its lease has changed, errChanged if it is no waiter's, asWaiter.
func (b *Backend) remove(ctx context.Context, n *node, why simba.Event, on condition) error {
	b.mu.Lock()
	if n.grantedLocked(on) {
		b.mu.Unlock()
		return errChanged
	}
	why.Mutex, why.Owner = n.mutex, n.contender
	if why.Kind != 0 && why.Kind != simba.EventLeft {
		why.Token = n.token
	}
	m := b.mutexLocked(n.mutex)
	m.endings[n.guid] = why
	watched, reserved := m.watcher != nil, !n.reservedUntil.IsZero()
	next := b.nextLocked(m, n)
	var h *nextOwner
	if next != nil {
		next.granting, next.succeeding = true, true
		h = &nextOwner{next, next.recordLocked(time.Now()), next.version}
		h.record.Kind, h.record.Server, h.record.Acquired = kindOwner, b.id, 0
	}
	b.mu.Unlock()
	handed := false
	defer func() {
		b.mu.Lock()
		delete(m.endings, n.guid)
		if n.grantedLocked(on) && !n.forgotten && !n.foreign { // what was heard of its lease meanwhile was passed over
			n.watchAt = time.Now()
			b.armLocked(n)
		}
		if next != nil {
			next.granting, next.succeeding = false, false
			if m.watcher != nil && !handed { // it may have waited for us
				m.watcher.wake()
			}
		}
		b.tidyLocked(m)
		b.mu.Unlock()
	}()
	sure := true // that nothing was deleted by an earlier attempt
	for {
		b.mu.Lock()
		granted, version := n.grantedLocked(on), n.version // the end of another's tenure may hand the mutex on to it meanwhile
		b.mu.Unlock()
		if granted {
			return errChanged
		}
		start := time.Now()
		stat, left, err := n.s.delete(ctx, n, version, h, watched)
		switch {
		case h != nil && (errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion)): // of one or the other
			h = nil
			continue
		case err == nil, !sure && errors.Is(err, zk.ErrNoNode):
			b.mu.Lock()
			b.dropLocked(n)
			b.mu.Unlock()
			b.announceEnd(why)
			switch {
			case err == nil && h != nil:
				handed = true
				b.beginNext(next, start, stat)
			case err == nil && left == 0:
				b.announceFree(n.mutex, reserved)
			}
			if err != nil {
				return errUnknownRemover
			}
			return nil
		case errors.Is(err, zk.ErrNoNode):
			b.mu.Lock()
			delete(m.endings, n.guid) // it was not us
			b.mu.Unlock()
			b.forgetDeleted(n)
			return err
		case !n.s.alive():
			return errSessionOver
		case certain(err) && !errors.Is(err, errCutOff):
			return err
		case ctx.Err() != nil:
			b.mu.Lock()
			granted, version := n.grantedLocked(on), n.version
			orphaned := !granted && why.Kind != simba.EventExpired // who asked for it, or is gone, does not ask again
			if orphaned {
				b.dropLocked(n)
				m.resetOwnAheadLocked() // it may still be there, in front of them
				b.addOrphanLocked(n.key(), n.guid, version)
			}
			b.mu.Unlock()
			if granted {
				return errChanged
			}
			return err
		}
		sure = false
	}
}

// errByWhom is remove's, a kind of zk.ErrNoNode, when the node was gone after an attempt that had no answer: by that, or
// by another server's request meanwhile.
var errUnknownRemover = fmt.Errorf("whether this ended it is not known: %w", zk.ErrNoNode)

// creditable makes errByWhom errUnknown, for a request whose answer says that it has ended a tenure: only one may say so.
func asUnknownIfUncertain(err error) error {
	if errors.Is(err, errUnknownRemover) {
		return errUnknown
	}
	return err
}

// grantedLocked reports whether a node that is to go as a waiter's is none any more, or is being made an owner's.
func (n *node) grantedLocked(on condition) bool {
	return on == asWaiter && !n.bare && (n.succeeding || n.kind == kindOwner)
}

// removeOnce is remove for a request. It returns errChanged if the node is not as the request found it: then it is known as it is, and the
// request looks again. It returns errUnknown, for which no request is made again, if the session
// has ended: what the request would find then may be another tenure than the one that it has ended perhaps.
func (b *Backend) removeOnce(ctx context.Context, n *node, why simba.Event, on condition) error {
	err := b.remove(ctx, n, why, on)
	if errors.Is(err, zk.ErrBadVersion) {
		if err = b.reload(ctx, n); err == nil {
			err = errChanged
		}
	}
	if errors.Is(err, errSessionOver) {
		return errUnknown
	}
	return err
}

// nextLocked returns the node that comes after an owner's, if a connection here waits by it
// and we know that there is none in between: we keep all that were in front when it took
// its place. So the end of a tenure hands the mutex on in the same step.
func (b *Backend) nextLocked(m *mutex, n *node) (next *node) {
	if n.kind != kindOwner || n.foreign {
		return nil
	}
	for _, o := range m.nodes {
		if o != n && o.s == n.s && !o.foreign && (next == nil || sortKey(o.child) < sortKey(next.child)) {
			next = o
		}
	}
	if next == nil || !next.onlyOwnAhead || next.granting || next.kind != kindBlocked || b.elsewhereLocked(next) || !b.waitsLocked(next.key()) {
		return nil
	}
	return next
}

// succeed begins the tenure of a node that was made an owner's by the end of the one before.
func (b *Backend) beginNext(n *node, start time.Time, stat *zk.Stat) {
	b.mu.Lock()
	if n.kind == kindOwner { // its contender has asked by another connection meanwhile, and was told
		b.mu.Unlock()
		b.endOtherWait(n, nil)
		return
	}
	n.kind, n.server, n.version = kindOwner, b.id, stat.Version
	n.since, n.acquiredAt = start, stat.Mtime
	n.reservedUntil, n.idle, n.writeAt, n.unacknowledged, n.over = time.Time{}, false, time.Time{}, true, false
	b.armLocked(n)
	b.mu.Unlock()
	b.handOff(n)
}

// heir is the node that is made an owner's by the end of the one before, if it is as we
// know it.
type nextOwner struct {
	*node
	record  *record
	version int32
}

// delete deletes a latch node and its lease, if that has the version (-1 = any), in one step; with an
// heir, if that node is there and its lease is as we know it, that becomes the owner's in
// the same step. Then it returns the stat of its lease. With count, it also returns how many nodes are left; else -1.
func (s *session) delete(ctx context.Context, n *node, version int32, h *nextOwner, count bool) (stat *zk.Stat, left int, err error) {
	ops := []any{&zk.DeleteRequest{Path: s.latch(n.mutex, n.child), Version: -1}}
	if !n.bare {
		ops = append(ops, &zk.DeleteRequest{Path: s.lease(n.guid), Version: version})
	}
	if h != nil {
		ops = append(ops,
			&zk.CheckVersionRequest{Path: s.latch(n.mutex, h.child), Version: -1},
			&zk.SetDataRequest{Path: s.lease(h.guid), Data: h.record.encode(), Version: h.version})
	}
	if count = count && h == nil; count {
		ops = append(ops, &zk.SetDataRequest{Path: s.mutex(n.mutex), Version: -1}) // as create does
	}
	res, err := s.multi(ctx, ops...)
	if err != nil {
		return nil, -1, err
	}
	stat = res[len(res)-1].Stat
	if count {
		return stat, int(stat.NumChildren), nil
	}
	return stat, -1, nil
}

// tell tells of an end, and counts it, if nobody has before.
func (b *Backend) announceEnd(e simba.Event) {
	if e.Kind == 0 || b.eventLog.Announce(e) == 0 {
		return
	}
	switch e.Kind {
	case simba.EventReleased:
		b.counters.released.Add(1)
	case simba.EventExpired:
		b.counters.expired.Add(1)
	case simba.EventBroken:
		b.counters.broken.Add(1)
	}
}
