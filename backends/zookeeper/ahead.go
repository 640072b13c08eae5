package zookeeper

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
)

// What a new node finds in front of itself: nodes of waiters that may be passed, and
// its own contender's, made through another server.

// overtake removes the nodes of waiters that had their turn, or could not be told of it, and
// returns how many nodes are left in front.
func (b *Backend) removeMissedAhead(ctx context.Context, s *session, mutex string, ahead []string) (left int, err error) {
	for i, child := range ahead {
		if passed, err := b.removeIfMissed(ctx, s, mutex, child); err != nil || !passed {
			return len(ahead) - i, err
		}
	}
	return 0, nil
}

func (b *Backend) removeIfMissed(ctx context.Context, s *session, mutex, child string) (removed bool, err error) {
	for deadline := time.Now().Add(decideWithin); ; {
		b.mu.Lock()
		own, now := b.createdLocked(mutex, child), time.Now()
		ended := own != nil && own.kind == kindOwner && !own.ownsLocked(now)
		busy := own != nil && !own.missedLocked(now)
		b.mu.Unlock()
		if ended && now.Before(deadline) && b.pause(decidePause) { // it is about to go, and the mutex counts as free
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
		if own != nil { // what we know may have yet to be written
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
			b.eventLog.Announce(simba.Event{Kind: simba.EventLeft, Mutex: mutex, Owner: n.contender, Reason: "passed over"})
			return true, nil
		case errors.Is(err, zk.ErrNoNode):
			return true, nil
		case !errors.Is(err, zk.ErrBadVersion): // else look what has changed
			return false, err
		}
	}
}

// undo deletes a node that was just made, unless its contender uses it through another server
// by now: then it is kept.
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

// yield gives the place of a new node up for an older one of the same contender.
func (b *Backend) yieldTo(ctx context.Context, n, older *node) error {
	kept, err := b.undoCreate(ctx, n)
	if err == nil && !kept && older != nil {
		b.mu.Lock()
		b.addLocked(older)
		b.mu.Unlock()
	}
	return err
}

// elder returns the contender's node, made through another server, among the first nodes
// of a mutex, or nil.
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
		if n.kind == kindAsking && i > 0 { // it has yet to say that it waits
			n.kind, n.expiresAt, n.presumedUntil = kindPolling, time.Now().Add(b.QueueGrace()), n.end()
		}
		return n, nil
	}
	return nil, nil
}
