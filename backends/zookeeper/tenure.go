package zookeeper

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// beginTenure begins a tenure with a new node that is the first. t is the ticket of a blocked
// request, else nil.
func (b *Backend) beginTenure(n *node, t *proxy.Ticket) simba.Outcome {
	b.mu.Lock()
	n.kind, n.unacknowledged, n.over, n.presumedUntil = kindOwner, t != nil, false, time.Time{}
	b.addLocked(n)
	b.scheduleWriteLocked(n, ownerWriteDelay)
	b.mu.Unlock()
	b.announceTenure(n, "")
	b.endOtherWait(n, t)
	return b.ownOutcome(n, simba.StatusAcquired)
}

func (b *Backend) announceTenure(n *node, reason string) {
	for {
		last := b.counters.token.Load()
		if n.token <= last || b.counters.token.CompareAndSwap(last, n.token) {
			break
		}
	}
	// Announce the ends of earlier tenures first. They have certainly ended, although the deletions
	// of their nodes may have no answer yet.
	var before []simba.Event
	b.mu.Lock()
	at := n.acquiredAt
	if m := b.mutexes[n.mutex]; m != nil {
		for _, e := range m.endings {
			if e.Token != 0 && e.Token < n.token {
				before = append(before, e)
			}
		}
	}
	b.mu.Unlock()
	for _, e := range before {
		b.announceEnd(e)
	}
	b.counters.acquired.Add(int64(b.eventLog.Record(simba.Event{
		At: at, Kind: simba.EventAcquired, Mutex: n.mutex, Owner: n.contender, Token: n.token, Reason: reason,
	})))
}

// endOtherWait ends a wait of the node's contender with the grant, unless its ticket is t.
func (b *Backend) endOtherWait(n *node, t *proxy.Ticket) {
	if other := b.waiters.Find(n.mutex, n.contender); other != nil && other != t {
		b.waiters.Grant(n.mutex, n.contender, b.grantOf(n))
	}
}

// becomeOwner grants the mutex to a contender whose node has become the first. made says that this
// request created the node.
func (b *Backend) becomeOwner(ctx context.Context, n *node, r simba.AcquireRequest, t *proxy.Ticket, made bool) (out simba.Outcome, done bool, err error) {
	if err := b.writeOwner(ctx, n, r.TTL, r.Transition, b.binding(r.Session), made); err != nil {
		return out, false, err
	}
	b.setUnacknowledged(n, t != nil)
	b.announceTenure(n, "")
	b.endOtherWait(n, t)
	return b.ownOutcome(n, simba.StatusAcquired), true, nil
}

// setUnacknowledged sets the flag, which each renewal clears. The client of a blocked request may
// leave before it receives the reply.
func (b *Backend) setUnacknowledged(n *node, unacknowledged bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n.unacknowledged = unacknowledged
}

func (b *Backend) ownOutcome(n *node, status simba.Status) simba.Outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := simba.Outcome{Status: status, Owner: n.contender, Token: n.token}
	out.TTL, out.Transition = n.left(time.Now())
	return out
}
