package zookeeper

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
)

// Two kinds of nodes ahead of a new one need care. Those of polling waiters that missed their
// reservation are deleted. If the contender has an older node, the server deletes the new
// one and goes on with the older one.

// removeMissedAhead calls removeIfMissed for the nodes from the front of the queue, until it keeps
// one. It returns how many of the nodes ahead are left.
func (b *Backend) removeMissedAhead(ctx context.Context, s *session, mutex string, ahead []string) (left int, err error) {
	for i, child := range ahead {
		if removed, err := b.removeIfMissed(ctx, s, mutex, child); err != nil || !removed {
			return len(ahead) - i, err
		}
	}
	return 0, nil
}

// removeIfMissed deletes a node if its polling waiter missed its reservation or was unreachable. It
// reports whether the node is gone.
func (b *Backend) removeIfMissed(ctx context.Context, s *session, mutex, child string) (removed bool, err error) {
	for deadline := time.Now().Add(decideWithin); ; {
		b.mu.Lock()
		own, now := b.createdLocked(mutex, child), time.Now()
		ended := own != nil && own.kind == kindOwner && !own.ownsLocked(now)
		busy := own != nil && !own.missedLocked(now)
		b.mu.Unlock()
		// The node of an ended lease is about to be deleted.
		if ended && now.Before(deadline) && b.pause(decidePause) {
			continue
		}
		if busy {
			return false, nil
		}
		n, err := b.readNode(ctx, s, mutex, child)
		if err != nil || n == nil {
			return err == nil, err
		}
		idle := n.kind == kindPolling && n.idle
		if own != nil { // the lease node may not have the flag Idle yet
			b.mu.Lock()
			idle = own.missedLocked(time.Now()) && own.version == n.version
			b.mu.Unlock()
		}
		if !idle {
			return false, nil
		}
		switch _, _, err := s.delete(ctx, n, n.version, nil, false); {
		case err == nil:
			if own != nil {
				b.mu.Lock()
				b.dropLocked(own)
				b.mu.Unlock()
			}
			b.eventLog.Record(simba.Event{Kind: simba.EventLeft, Mutex: mutex, Owner: n.contender, Reason: "passed over"})
			return true, nil
		case errors.Is(err, zk.ErrNoNode):
			return true, nil
		case !errors.Is(err, zk.ErrBadVersion): // else read the changed node again
			return false, err
		}
	}
}

// undoCreate deletes a node that this request has created. It keeps the node if the contender
// already uses it through another server.
func (b *Backend) undoCreate(ctx context.Context, n *node) (kept bool, err error) {
	if err = b.removeOwn(ctx, n, simba.Event{}, thisVersion); err != nil {
		return false, ignoreNoNode(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if kept = !n.forgotten; kept {
		b.addLocked(n)
	}
	return kept, nil
}

// yieldTo deletes the new node n. The argument older is the contender's older node. If it is not
// nil, yieldTo adds it to the nodes that this server knows. yieldTo keeps n if the contender
// already uses n through another server.
func (b *Backend) yieldTo(ctx context.Context, n, older *node) error {
	kept, err := b.undoCreate(ctx, n)
	if err == nil && !kept && older != nil {
		b.mu.Lock()
		b.addLocked(older)
		b.mu.Unlock()
	}
	return err
}

// olderNode looks among the nodes with these names for one that another session created for the
// contender. It returns nil if there is none.
func (b *Backend) olderNode(ctx context.Context, s *session, k nodeKey, names []string) (*node, error) {
	mark := protected + contenderMark(k.contender)
	for i, child := range names {
		if g := guidOf(child); !strings.HasPrefix(child, mark) || g.tagged(s.tag) {
			continue
		}
		n, err := b.readNode(ctx, s, k.mutex, child)
		if err != nil {
			return nil, err
		}
		if n == nil || n.contender != k.contender {
			continue
		}
		if n.kind == kindAsking && i > 0 { // the creator has not written kindPolling yet
			n.kind, n.expiresAt, n.presumedUntil = kindPolling, time.Now().Add(b.QueueGrace()), n.end()
		}
		return n, nil
	}
	return nil, nil
}
