package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
)

// remove deletes a node and announces the event, unless event.Kind is 0. It returns zk.ErrNoNode if
// another server had deleted the node, and zk.ErrBadVersion if its lease was changed. If remove
// cannot find out who deleted the node, it announces the event and returns errUnknownRemover. If
// required is asWaiter, it returns errChanged if the contender does not wait any more.
func (b *Backend) remove(ctx context.Context, n *node, event simba.Event, required condition) error {
	b.mu.Lock()
	if n.grantedLocked(required) {
		b.mu.Unlock()
		return errChanged
	}
	event.Mutex, event.Owner = n.mutex, n.contender
	if event.Kind != 0 && event.Kind != simba.EventLeft {
		event.Token = n.token
	}
	m := b.mutexLocked(n.mutex)
	m.endings[n.guid] = event
	watched, reserved := m.watcher != nil, !n.reservedUntil.IsZero()
	next := b.nextLocked(m, n)
	var h *nextOwner
	if next != nil {
		next.granting, next.becomingOwner = true, true
		h = &nextOwner{next, next.recordLocked(time.Now()), next.version}
		h.record.Kind, h.record.Server, h.record.Acquired = kindOwner, b.id, 0
	}
	b.mu.Unlock()
	handed := false
	defer func() {
		b.mu.Lock()
		delete(m.endings, n.guid)
		// If the node stays, read its lease again: changes were ignored meanwhile.
		if n.grantedLocked(required) && !n.forgotten && !n.foreign {
			n.watchAt = time.Now()
			b.armLocked(n)
		}
		if next != nil {
			next.granting, next.becomingOwner = false, false
			if m.watcher != nil && !handed { // the watcher skipped next meanwhile
				m.watcher.wake()
			}
		}
		b.tidyLocked(m)
		b.mu.Unlock()
	}()
	sure := true // no earlier attempt of this call can have deleted the node
	for {
		b.mu.Lock()
		// The end of another tenure may have granted the mutex to this waiter meanwhile.
		granted, version := n.grantedLocked(required), n.version
		b.mu.Unlock()
		if granted {
			return errChanged
		}
		start := time.Now()
		stat, left, err := n.s.delete(ctx, n, version, h, watched)
		switch {
		case h != nil && (errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion)):
			// The error may concern n or next. So try without next.
			h = nil
			continue
		case err == nil, !sure && errors.Is(err, zk.ErrNoNode):
			b.mu.Lock()
			b.dropLocked(n)
			b.mu.Unlock()
			b.announceEnd(event)
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
			delete(m.endings, n.guid) // another server deleted it
			b.mu.Unlock()
			b.forgetDeleted(n)
			return err
		case !n.s.alive():
			return errSessionOver
		case certain(err) && !errors.Is(err, errCutOff):
			return err
		case ctx.Err() != nil:
			b.mu.Lock()
			granted, version := n.grantedLocked(required), n.version
			// After an expiry the node's timer repeats the deletion. Otherwise the node becomes
			// an orphan.
			orphaned := !granted && event.Kind != simba.EventExpired
			if orphaned {
				b.dropLocked(n)
				m.resetOwnAheadLocked() // the node may still exist ahead of others
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

// errUnknownRemover is a zk.ErrNoNode. remove returns it when the node is gone after an attempt
// without an answer. Either that attempt or a request of another server has deleted the node.
var errUnknownRemover = fmt.Errorf("cannot tell whether this request or another one ended the tenure: %w", zk.ErrNoNode)

// asUnknownIfUncertain turns errUnknownRemover into errUnknown. A request uses it if the reply says
// that this request ended the tenure. For each tenure, at most one request may give this reply.
func asUnknownIfUncertain(err error) error {
	if errors.Is(err, errUnknownRemover) {
		return errUnknown
	}
	return err
}

// grantedLocked reports whether required is asWaiter, but the contender owns the mutex by now or a
// grant is in progress.
func (n *node) grantedLocked(required condition) bool {
	return required == asWaiter && !n.bare && (n.becomingOwner || n.kind == kindOwner)
}

// removeOnce is remove for a request. If another server has changed the node, removeOnce reads the
// new state and returns errChanged. Then the caller starts again. If the session has ended,
// removeOnce returns errUnknown. Then the caller must not start again, since it could end a later
// tenure.
func (b *Backend) removeOnce(ctx context.Context, n *node, why simba.Event, required condition) error {
	err := b.remove(ctx, n, why, required)
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

// nextLocked returns the node of the next waiter, if the step that ends n's tenure can also grant
// the mutex to that waiter. Otherwise it returns nil. The waiter must be blocked at this server.
// This server must have created all nodes ahead of the waiter's node. Otherwise there may be an
// unknown node between n and that node.
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

func (b *Backend) beginNext(n *node, start time.Time, stat *zk.Stat) {
	b.mu.Lock()
	if n.kind == kindOwner { // another request has made the contender the owner
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

// nextOwner is the node of a waiter that delete makes the owner. record is the new data of the
// waiter's lease node. delete fails if that lease node has another version.
type nextOwner struct {
	*node
	record  *record
	version int32
}

// delete deletes a latch node and its lease node in one step. The lease node must have the version;
// -1 means any. If h is not nil, the same step makes h's contender the owner, and stat is the new
// Stat of h's lease node. If count is true and h is nil, left is the number of latch nodes that the
// mutex still has. Otherwise left is -1.
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
		ops = append(ops, &zk.SetDataRequest{Path: s.mutex(n.mutex), Version: -1})
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

func (b *Backend) announceEnd(e simba.Event) {
	if e.Kind == 0 || b.eventLog.Record(e) == 0 {
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
