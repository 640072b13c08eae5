package zookeeper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

const reasonHandoff = "handoff"

// Acquire implements simba.Backend. It acquires a free mutex in one round trip.
func (b *Backend) Acquire(ctx context.Context, r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return simba.Outcome{}, nil, err
	}
	defer leave()
	if r.Waiter == nil {
		out, err := b.acquire(ctx, r)
		if err != nil {
			return simba.Outcome{}, nil, b.failed(err)
		}
		return out, nil, nil
	}
	t := b.waiters.Enter(r)
	var out simba.Outcome
	unlock, err := b.lockKey(ctx, nodeKey{r.Mutex, r.Contender})
	if err == nil {
		// tryRejoin waits for this lock and then looks for the ticket. So unlock only after
		// Withdraw.
		defer unlock()
		out, err = b.acquireWithLock(ctx, r, t)
	}
	if err == nil && out.Status == simba.StatusWaiting {
		return out, t, nil
	}
	if !t.Withdraw() { // the ticket was granted or replaced meanwhile; End returns the outcome
		return simba.Outcome{Status: simba.StatusWaiting}, t, nil
	}
	if err != nil {
		b.unblock(nodeKey{r.Mutex, r.Contender})
		return simba.Outcome{}, nil, b.failed(err)
	}
	b.mu.Lock()
	if n := b.nodeLocked(nodeKey{r.Mutex, r.Contender}); n != nil {
		n.unacknowledged = false // this reply acknowledges the tenure
	}
	b.mu.Unlock()
	return out, nil, nil
}

func (b *Backend) acquire(ctx context.Context, r simba.AcquireRequest) (simba.Outcome, error) {
	unlock, err := b.lockKey(ctx, nodeKey{r.Mutex, r.Contender})
	if err != nil {
		return simba.Outcome{}, err
	}
	defer unlock()
	return b.acquireWithLock(ctx, r, nil)
}

// acquireWithLock grants, renews or enqueues. t is the ticket of r.Waiter, nil without a Waiter.
// The caller holds the key's lock.
func (b *Backend) acquireWithLock(ctx context.Context, r simba.AcquireRequest, t *proxy.Ticket) (simba.Outcome, error) {
	for made := (*node)(nil); ; {
		s, err := b.current(ctx, r.Mutex)
		if err != nil {
			return simba.Outcome{}, err
		}
		out, done, err := b.tryAcquire(ctx, s, r, t, &made)
		switch {
		case err == nil && done:
			return out, nil
		case t == nil && errors.Is(err, errSessionOver):
			// The ensemble may have executed the request, and another attempt could change a later
			// tenure. Only a blocked request tries again.
			return simba.Outcome{}, errUnknown
		case err == nil, errors.Is(err, zk.ErrNoNode), errors.Is(err, errSessionOver), errors.Is(err, errChanged):
			if ctx.Err() != nil {
				return simba.Outcome{}, errNoAnswer
			}
		default:
			return simba.Outcome{}, err
		}
	}
}

// tryAcquire makes one attempt. done is false if the caller must try again. made points to the node
// that this request has created, nil = none yet.
func (b *Backend) tryAcquire(ctx context.Context, s *session, r simba.AcquireRequest, t *proxy.Ticket, made **node) (out simba.Outcome, done bool, err error) {
	k := nodeKey{r.Mutex, r.Contender}
	if b.hasOrphans(k) {
		if err := b.reconcile(ctx, s, k); err != nil {
			return out, false, err
		}
	}
	n := b.nodeAt(k)
	switch {
	case n == nil:
		return b.joinQueue(ctx, s, r, t, made)
	case n.s != s: // its session is over
		b.mu.Lock()
		b.dropLocked(n)
		b.mu.Unlock()
		return out, false, nil
	}
	b.mu.Lock()
	owner, ended, unacknowledged := n.kind == kindOwner, n.endedLocked(time.Now()), n.unacknowledged && !n.answered
	b.mu.Unlock()
	switch {
	case owner && ended:
		// The contender itself asks. So end its lease even if another server created the node.
		return out, false, b.expire(ctx, n)
	case owner:
		if err := b.renew(ctx, n, r.TTL, r.Transition, b.binding(r.Session)); err != nil {
			return out, false, err
		}
		b.setUnacknowledged(n, t != nil && unacknowledged)
		b.counters.renewed.Add(1)
		return b.ownOutcome(n, simba.StatusRenewed), true, nil
	}
	names, err := s.children(ctx, r.Mutex)
	if err != nil {
		return out, false, err
	}
	switch i := slices.Index(names, n.child); {
	case i < 0:
		b.forgetDeleted(n)
		return out, false, nil
	case i == 0 && ended: // other servers may have reported its lease, which has now ended
		b.announceTenure(n, "")
		return out, false, b.expire(ctx, n)
	case i == 0:
		return b.becomeOwner(ctx, n, r, t, n == *made)
	case r.NoQueue:
		return b.refuse(ctx, s, r, names, n.child)
	default:
		return b.stayQueued(ctx, s, n, r, t, names)
	}
}

// joinQueue creates a node for a contender that has none, as far as this server knows. If the
// contender has an older node, joinQueue deletes the new one again.
func (b *Backend) joinQueue(ctx context.Context, s *session, r simba.AcquireRequest, t *proxy.Ticket, made **node) (out simba.Outcome, done bool, err error) {
	k := nodeKey{r.Mutex, r.Contender}
	if r.NoQueue && b.heldHere(r.Mutex) {
		out, done, err = b.checkBusy(ctx, s, r)
		if err != nil || done {
			return out, done, err
		}
	}
	rec := &record{
		Mutex: r.Mutex, Contender: r.Contender, Kind: kindAsking, Creator: b.id, Server: b.id, Session: b.binding(r.Session),
		TTL: r.TTL.Milliseconds(), Transition: r.Transition.Milliseconds(),
	}
	if t != nil {
		rec.Kind = kindBlocked
	}
	c, err := b.create(ctx, s, k, rec)
	if lasting(err) || errors.Is(err, errQuotaExceeded) {
		// A renewal needs no new node. So if the contender owns the mutex by a node of another
		// server, continue with that node.
		if n, found := b.owned(ctx, s, k, 0); n != nil && found == nil {
			return out, false, nil
		}
	}
	if err != nil {
		return out, false, err
	}
	n := c.node
	*made = n
	if c.only {
		return b.beginTenure(n, t), true, nil
	}
	names, err := s.children(ctx, r.Mutex)
	if err != nil {
		b.mu.Lock()
		b.dropLocked(n)
		b.addOrphanLocked(k, n.guid, 0)
		b.mu.Unlock()
		return out, false, err
	}
	at := slices.Index(names, n.child)
	if at < 0 {
		b.forgetDeleted(n)
		return out, false, nil
	}
	other, err := b.olderNode(ctx, s, k, names[:at])
	// If the older node is the first, the contender may be the owner. decided finds that out.
	if err == nil && other != nil && other.child == names[0] {
		other, err = b.decided(ctx, s, r.Mutex, other.child)
	}
	if err != nil || other != nil {
		return out, false, errors.Join(err, b.yieldTo(ctx, n, other))
	}
	if at > 0 {
		left, err := b.removeMissedAhead(ctx, s, r.Mutex, names[:at])
		if err != nil {
			return out, false, errors.Join(err, b.yieldTo(ctx, n, nil))
		}
		names, at = names[at-left:], left
	}
	switch {
	case at == 0 && b.ended(n): // n's windows ended before the nodes ahead were deleted
		b.mu.Lock()
		n.expiresAt = time.Now()
		b.addLocked(n)
		b.mu.Unlock()
		return out, false, nil
	case at == 0:
		return b.beginTenure(n, t), true, nil
	case r.NoQueue:
		if kept, err := b.undoCreate(ctx, n); kept || err != nil {
			return out, false, err
		}
		return b.refuse(ctx, s, r, slices.Delete(names, at, at+1), "")
	}
	b.mu.Lock()
	n.expiresAt = time.Now().Add(b.QueueGrace()) // a first value; stayQueued sets the final one
	if t != nil {
		n.kind = kindBlocked
	}
	b.addLocked(n)
	n.onlyOwnAhead = true
	for _, child := range names[:at] {
		n.onlyOwnAhead = n.onlyOwnAhead && b.createdLocked(r.Mutex, child) != nil
	}
	b.mu.Unlock()
	b.eventLog.Record(simba.Event{Kind: simba.EventQueued, Mutex: r.Mutex, Owner: r.Contender})
	return b.stayQueued(ctx, s, n, r, t, names)
}

func (b *Backend) ended(n *node) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return n.endedLocked(time.Now())
}

// stayQueued keeps a queue entry, and records whether its contender is blocked or polls.
func (b *Backend) stayQueued(ctx context.Context, s *session, n *node, r simba.AcquireRequest, t *proxy.Ticket, names []string) (out simba.Outcome, done bool, err error) {
	out.Status = simba.StatusWaiting
	if t == nil {
		h, err := b.head(ctx, s, r.Mutex, names, n.child)
		if err != nil {
			return out, false, err
		}
		if h.child == n.child { // the nodes ahead are gone
			return out, false, nil
		}
		out = h.outcome(simba.StatusQueued)
		out.Position = h.position(n.child)
	}
	if b.recordWait(n, r, t, out) {
		// The creator must know that the contender waits here. Else it deletes the node, as that of a
		// polling waiter that nobody can reach.
		err = b.writeRecord(ctx, n)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n.kind == kindOwner || n.forgotten { // granted or deleted meanwhile
		return out, false, ignoreNoNode(err)
	}
	b.watcherLocked(r.Mutex).wake()
	return out, true, err
}

// recordWait makes a waiter blocked or polling, unless it is the owner by now, and schedules the
// write of its lease node. foreign reports that the waiter is blocked and that another server
// created its node.
func (b *Backend) recordWait(n *node, r simba.AcquireRequest, t *proxy.Ticket, out simba.Outcome) (foreign bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if out.Token != 0 {
		n.queuedBehind = simba.Event{Owner: out.Owner, Token: out.Token}
	}
	if n.kind == kindOwner || n.forgotten {
		return false
	}
	blocked := b.waitsLocked(n.key())
	// A poll does not change the windows of a blocked request of the same contender.
	if t != nil || !blocked {
		n.ttl, n.transition, n.binding = r.TTL, r.Transition, b.binding(r.Session)
	}
	if blocked {
		if n.kind != kindBlocked || n.foreign || b.elsewhereLocked(n) {
			b.scheduleWriteLocked(n, 0)
		}
		n.kind, n.reservedUntil, n.idle = kindBlocked, time.Time{}, false
	} else {
		n.kind = kindPolling
		n.expiresAt = time.Now().Add(out.Transition + b.QueueGrace())
		b.scheduleWriteLocked(n, 0)
	}
	return blocked && n.foreign
}

// refuse returns the outcome of a NOQUEUE request. child is the contender's node from an earlier
// request, "" = none. done is false if the contender has become the owner meanwhile. The caller
// then tries again, since an owner is never refused.
func (b *Backend) refuse(ctx context.Context, s *session, r simba.AcquireRequest, names []string, child string) (out simba.Outcome, done bool, err error) {
	h, err := b.head(ctx, s, r.Mutex, names, child)
	if err != nil || h.child != "" && h.child == child || h.owned && !h.bare && h.contender == r.Contender {
		return out, false, err
	}
	out = h.outcome(simba.StatusBusy)
	out.Position = h.position(child)
	return out, true, nil
}

func (b *Backend) heldHere(mutex string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := b.mutexes[mutex]; m != nil {
		now := time.Now()
		for _, n := range m.nodes {
			if n.ownsLocked(now) {
				return true
			}
		}
	}
	return false
}

// checkBusy refuses a NOQUEUE request for a mutex that is not free, without creating a node. done
// is false if the mutex may be free, or if the contender may own it.
func (b *Backend) checkBusy(ctx context.Context, s *session, r simba.AcquireRequest) (out simba.Outcome, done bool, err error) {
	if err := s.sync(ctx, s.mutexes()); err != nil {
		return out, false, err
	}
	names, err := s.children(ctx, r.Mutex)
	if err != nil || len(names) == 0 {
		return out, false, err
	}
	mark := protected + contenderMark(r.Contender)
	if slices.ContainsFunc(names, func(c string) bool { return strings.HasPrefix(c, mark) }) {
		return out, false, nil // the first node may be the contender's own
	}
	return b.refuse(ctx, s, r, names, "")
}

// expire deletes the node of an owner whose lease has ended. If another server has changed the
// lease, expire adopts the change instead.
func (b *Backend) expire(ctx context.Context, n *node) error {
	err := b.remove(ctx, n, simba.Event{Kind: simba.EventExpired}, thisVersion)
	if errors.Is(err, zk.ErrBadVersion) {
		err = b.reload(ctx, n)
	}
	return ignoreNoNode(err)
}

// unblock makes a blocked waiter a polling waiter, after its connection has closed or its wait has
// failed.
func (b *Backend) unblock(k nodeKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.nodeLocked(k)
	// The contender may be blocked on another connection.
	if n == nil || n.kind != kindBlocked || b.waitsLocked(k) || b.elsewhereLocked(n) {
		return
	}
	n.kind, n.reservedUntil, n.idle = kindPolling, time.Time{}, false
	n.expiresAt = time.Now().Add(b.QueueGrace())
	b.scheduleWriteLocked(n, 0)
	b.watcherLocked(k.mutex).wake()
}

// waitsLocked reports whether the contender is blocked on a connection of this server.
func (b *Backend) waitsLocked(k nodeKey) bool { return b.waiters.Find(k.mutex, k.contender) != nil }
