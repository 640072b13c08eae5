package zookeeper

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// This file has the methods of proxy.WaitEnder, which end blocked waits.

// Granted implements proxy.WaitEnder. A grant without a token means that the contender was removed
// from the queue.
func (b *Backend) Granted(t *proxy.Ticket, g proxy.Grant) (simba.Outcome, error) {
	ctx, leave, err := b.enter(context.Background())
	if err != nil {
		return simba.Outcome{}, err
	}
	defer leave()
	n := b.nodeAt(nodeKey{t.Request.Mutex, t.Request.Contender})
	if n != nil && n.token == g.Token && b.answerGrant(n) {
		return b.ownOutcome(n, simba.StatusAcquired), nil
	}
	return b.outcomeWithoutLease(ctx, t, simba.StatusTimeout)
}

// Reacquire implements proxy.WaitEnder.
func (b *Backend) Reacquire(t *proxy.Ticket) (simba.Outcome, simba.Ticket, error) {
	return b.Acquire(context.Background(), t.Request)
}

// answerGrant reports whether the node's contender still owns the mutex. If so, it records that
// Ticket.End returns the tenure.
func (b *Backend) answerGrant(n *node) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	owns := b.ownsLocked(n)
	n.answered = n.answered || owns
	return owns
}

// Replaced implements proxy.WaitEnder.
func (b *Backend) Replaced(t *proxy.Ticket) (simba.Outcome, error) {
	ctx, leave, err := b.enter(context.Background())
	if err != nil {
		return simba.Outcome{}, err
	}
	defer leave()
	return b.outcomeWithoutLease(ctx, t, simba.StatusQueued)
}

// Leave implements proxy.WaitEnder.
func (b *Backend) Leave(t *proxy.Ticket, why simba.EndReason) (simba.Outcome, error) {
	ctx, leave, err := b.enter(context.Background())
	if err != nil {
		return simba.Outcome{}, err
	}
	defer leave()
	k := nodeKey{t.Request.Mutex, t.Request.Contender}
	if why == simba.EndGone {
		b.unblock(k)
		if n := b.nodeAt(k); n != nil && b.owns(n) {
			return simba.Outcome{Status: simba.StatusTimeout}, b.failed(b.abandonGrant(ctx, k, n.token, false))
		}
		return simba.Outcome{Status: simba.StatusQueued}, nil
	}
	out, owner, err := b.leaveWait(ctx, k, why)
	if err != nil {
		b.unblock(k) // the node remains, but no connection is blocked on it
	}
	if owner || err != nil {
		return out, b.failed(err)
	}
	return b.outcomeWithoutLease(ctx, t, simba.StatusTimeout)
}

// leaveWait removes a waiter from the queue, unless it owns the mutex by now.
func (b *Backend) leaveWait(ctx context.Context, k nodeKey, why simba.EndReason) (out simba.Outcome, owner bool, err error) {
	unlock, err := b.lockKey(ctx, k)
	if err != nil {
		return out, false, err
	}
	defer unlock()
	reason := "left"
	if why == simba.EndTimeout {
		reason = "timeout"
	}
	for {
		n := b.nodeAt(k)
		// The node is gone, or the contender waits on another connection.
		if n == nil || b.waiters.Find(k.mutex, k.contender) != nil {
			return out, false, nil
		}
		b.mu.Lock()
		granted := n.kind == kindOwner
		b.mu.Unlock()
		switch {
		case b.answerGrant(n):
			return b.ownOutcome(n, simba.StatusAcquired), true, nil
		case granted: // the lease has ended and the node is about to be deleted
			return out, false, nil
		}
		err = b.removeOwn(ctx, n, simba.Event{Kind: simba.EventLeft, Reason: reason}, asWaiter)
		switch {
		case errors.Is(err, errChanged) && ctx.Err() == nil: // a grant is in progress
			b.pause(decidePause)
		case errors.Is(err, errSessionOver): // the session's nodes are deleted
			return out, false, nil
		default:
			return out, false, ignoreNoNode(err)
		}
	}
}

// HandOff implements proxy.WaitEnder.
func (b *Backend) HandOff(t *proxy.Ticket, g proxy.Grant) error {
	if g.Token == 0 {
		return nil
	}
	ctx, leave, err := b.enter(context.Background())
	if err != nil {
		return err
	}
	defer leave()
	return b.failed(b.abandonGrant(ctx, nodeKey{t.Request.Mutex, t.Request.Contender}, g.Token, false))
}

// abandonGrant releases a tenure whose waiter is gone, unless the contender has renewed it since.
// If unanswered is true, it also keeps a tenure that Ticket.End has returned. If the ensemble does
// not answer, remove records an orphan.
func (b *Backend) abandonGrant(ctx context.Context, k nodeKey, token uint64, unanswered bool) error {
	unlock, err := b.lockKey(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	n := b.nodeAt(k)
	if n == nil || n.token != token {
		return nil
	}
	b.mu.Lock()
	if !n.unacknowledged || unanswered && n.answered {
		b.mu.Unlock()
		return nil
	}
	b.mu.Unlock()
	return ignoreNoNode(b.removeOwn(ctx, n, simba.Event{Kind: simba.EventReleased, Reason: "waiter gone"}, thisVersion))
}

// abandonGrantInBackground is abandonGrant in the background, with unanswered = true.
func (b *Backend) abandonGrantInBackground(k nodeKey, token uint64) {
	b.background(func() {
		ctx, cancel := context.WithTimeout(b.life, b.options.Timeout)
		defer cancel()
		if err := b.abandonGrant(ctx, k, token, true); err != nil && b.life.Err() == nil {
			b.log.Warn("cannot hand off a mutex whose waiter is gone; retrying", "mutex", k.mutex, "contender", k.contender, "err", err)
		}
	})
}

// removeOwn is remove, but keeps the node if the contender continues with it through another
// server.
func (b *Backend) removeOwn(ctx context.Context, n *node, why simba.Event, required condition) error {
	for {
		err := b.remove(ctx, n, why, required)
		if !errors.Is(err, zk.ErrBadVersion) {
			return err
		}
		if err := b.reload(ctx, n); err != nil {
			return err
		}
		b.mu.Lock()
		ours := n.server == b.id
		b.mu.Unlock()
		if !ours {
			return nil
		}
	}
}

func (b *Backend) owns(n *node) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ownsLocked(n)
}

func (b *Backend) ownsLocked(n *node) bool { return n.ownsLocked(time.Now()) && n.s.alive() }

func (b *Backend) outcomeWithoutLease(ctx context.Context, t *proxy.Ticket, status simba.Status) (out simba.Outcome, err error) {
	err = b.retryRead(ctx, t.Request.Mutex, func(s *session) error {
		h, err := b.inspect(ctx, s, t.Request.Mutex)
		if err != nil {
			return err
		}
		out = h.outcome(status)
		if n := b.nodeAt(nodeKey{t.Request.Mutex, t.Request.Contender}); n != nil {
			out.Position = h.position(n.child)
		}
		return nil
	})
	return out, b.failed(err)
}
