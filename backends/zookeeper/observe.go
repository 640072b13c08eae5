package zookeeper

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
)

// head describes the first node of a mutex. The zero head means that the mutex has no node.
type head struct {
	names     []string // all nodes, in order
	child     string
	contender string
	token     uint64
	owned     bool   // the contender owns the mutex; false = it gets the mutex next
	bare      bool   // a JVM's node, without a lease node
	binding   string // the connection that the lease is bound to; "" = none

	acquiredAt, now int64 // Unix milliseconds on the ensemble's clock
	ttl, transition time.Duration
	// The rest of the windows. If the mutex is reserved, transitionLeft is the rest of the
	// reservation.
	ttlLeft, transitionLeft time.Duration
}

// outcome returns the outcome for a contender that does not own the mutex.
func (h *head) outcome(status simba.Status) simba.Outcome {
	out := simba.Outcome{Status: status, Transition: h.transitionLeft}
	if h.owned {
		out.Owner, out.Token, out.TTL = h.contender, h.token, h.ttlLeft
	}
	return out
}

// position returns a node's position in the queue, 0 if it is not queued.
func (h *head) position(child string) int {
	i := slices.Index(h.names, child)
	if h.owned {
		return max(i, 0)
	}
	return i + 1
}

func (h *head) waiters() int {
	if h.owned {
		return len(h.names) - 1
	}
	return len(h.names)
}

// inspect returns the head. The head is at least as new as every answer that any server gave before
// the call of inspect.
func (b *Backend) inspect(ctx context.Context, s *session, mutex string) (head, error) {
	if err := s.sync(ctx, s.mutexes()); err != nil {
		return head{}, err
	}
	names, err := s.children(ctx, mutex)
	if err != nil {
		return head{}, err
	}
	return b.head(ctx, s, mutex, names, "")
}

// head describes the first of the named nodes. If that node is gone, head lists the nodes again. own
// is the node of the caller, which holds its key's lock; "" = none. A grant to that node needs the
// lock. So if own is the first, head does not wait for the grant, and returns only child and names.
func (b *Backend) head(ctx context.Context, s *session, mutex string, names []string, own string) (head, error) {
	for {
		switch {
		case len(names) == 0:
			return head{}, nil
		case names[0] == own:
			return head{child: own, names: names}, nil
		}
		h, err := b.headOf(ctx, s, mutex, names[0])
		if err == nil {
			h.names = names
			return h, nil
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return head{}, err
		}
		if names, err = s.children(ctx, mutex); err != nil {
			return head{}, err
		}
	}
}

// headOf returns the head for the node child, which must be the first. Before it reports an ended
// lease, it records the end in the ensemble (markOver).
func (b *Backend) headOf(ctx context.Context, s *session, mutex, child string) (head, error) {
	for {
		n, err := b.decided(ctx, s, mutex, child)
		if err != nil {
			return head{}, err
		}
		b.mu.Lock()
		h := b.headLocked(n)
		ended := n.kind == kindOwner && !n.bare && !h.owned
		b.mu.Unlock()
		if ended {
			err = b.markOver(ctx, n)
		}
		if !errors.Is(err, zk.ErrBadVersion) {
			return h, err
		}
	}
}

// markOver writes the flag Over to the lease node of an ended lease, see the package comment. It
// first gives the creator time to delete the node. It does not delete the node itself, because this
// server may have measured the lease by the ensemble's clock, which may step. It returns
// zk.ErrNoNode if the node was deleted, and zk.ErrBadVersion if its lease was changed.
func (b *Backend) markOver(ctx context.Context, n *node) error {
	b.mu.Lock()
	s, over, version := n.s, n.over, n.version
	b.mu.Unlock()
	if over {
		return nil
	}
	for deadline := time.Now().Add(decideWithin); ; {
		lease, err := s.get(ctx, s.lease(n.guid))
		switch {
		case err != nil:
			return err
		case lease.stat.Version != version:
			return zk.ErrBadVersion
		}
		if time.Now().Before(deadline) {
			if !sleep(ctx, decidePause) {
				return errNoAnswer
			}
			continue
		}
		rec, err := decodeRecord(lease.data)
		if err != nil {
			return err
		}
		rec.Acquired, rec.Over = rec.began(&lease.stat), true
		_, err = s.change(ctx, n, &rec, version)
		return err
	}
}

const (
	// decideWithin is how long a server waits for the creator of a new first node to write the
	// outcome. After that the server treats the node as an owner's, because the creator may have
	// replied "acquired" before it was cut off from the ensemble.
	decideWithin = 10 * ownerWriteDelay
	decidePause  = 5 * time.Millisecond // between two reads while the server waits
)

// decided returns the node child, which must be the first, once this server knows whether it is an
// owner's. If this server created or renewed the node, the node in Backend.mutexes has the exact
// times. Then decided returns that one, unless another server has changed the lease node since.
func (b *Backend) decided(ctx context.Context, s *session, mutex, child string) (*node, error) {
	for deadline := time.Now().Add(decideWithin); ; {
		n, err := b.readNode(ctx, s, mutex, child)
		if err != nil {
			return nil, err
		}
		if n == nil {
			return nil, zk.ErrNoNode
		}
		b.mu.Lock()
		if known := b.countedLocked(mutex, child); known != nil && known.version >= n.version {
			n = known
		}
		undecided := n.undecidedLocked()
		b.mu.Unlock()
		if undecided && n.foreign {
			names, pzxid, err := s.childrenAt(ctx, mutex)
			if err != nil {
				return nil, err
			}
			if len(names) != 0 && names[0] == child && pzxid == int64(n.token) {
				n.kind = kindOwner // it was the first from its creation on
				return n, nil
			}
		}
		b.mu.Lock()
		if undecided && n.foreign && time.Now().After(deadline) {
			// The contender has owned the mutex since its node became the first. That time is
			// unknown, so count the windows from now.
			if n.kind == kindBlocked && !n.over {
				n.since = time.Now()
			}
			n.kind, undecided = kindOwner, false
		}
		b.mu.Unlock()
		if !undecided {
			return n, nil
		}
		select {
		case <-time.After(decidePause):
		case <-ctx.Done():
			return nil, errNoAnswer
		}
	}
}

// undecidedLocked reports whether the node's creator has not written the outcome yet: whether the
// node is an owner's.
func (n *node) undecidedLocked() bool {
	return n.kind == kindAsking || n.kind == kindBlocked && n.server == n.creator
}

// countedLocked returns the node child if this server created or renewed it, else nil. Of such a
// node this server measures the lease by its own clock.
func (b *Backend) countedLocked(mutex, child string) *node {
	if m := b.mutexes[mutex]; m != nil {
		if n := m.guids[guidOf(child)]; n != nil && (!n.foreign || n.kind == kindOwner && n.server == b.id) {
			return n
		}
	}
	return nil
}

func (b *Backend) createdLocked(mutex, child string) *node {
	if m := b.mutexes[mutex]; m != nil {
		if n := m.guids[guidOf(child)]; n != nil && !n.foreign {
			return n
		}
	}
	return nil
}

func (b *Backend) headLocked(n *node) head {
	now := time.Now()
	h := head{child: n.child, contender: n.contender, token: n.token, bare: n.bare, binding: n.binding, now: b.clock.at(now)}
	switch {
	case n.kind == kindPolling && !n.reservedUntil.IsZero():
		h.transitionLeft = max(0, n.reservedUntil.Sub(now))
	case n.kind == kindPolling && n.idle:
	case n.kind == kindPolling:
		h.transitionLeft = b.HandoffWindow()
	case n.kind == kindBlocked || n.kind == kindAsking: // a grant is in progress
		h.transitionLeft = n.s.negotiated()
	default:
		h.ttl, h.transition = n.ttl, n.transition
		h.ttlLeft, h.transitionLeft = n.left(now)
		h.owned = h.transitionLeft > 0 && !n.over
		h.acquiredAt, h.now = n.acquiredAt, n.acquiredAt+now.Sub(n.since).Milliseconds()
	}
	return h
}

// readNode reads a node from the ensemble; nil if it is gone.
func (b *Backend) readNode(ctx context.Context, s *session, mutex, child string) (*node, error) {
	g := guidOf(child)
	var latch, lease znode
	var latchErr, leaseErr error
	var both sync.WaitGroup
	both.Go(func() { latch, latchErr = s.get(ctx, s.latch(mutex, child)) })
	if g == "" {
		leaseErr = zk.ErrNoNode
	} else {
		lease, leaseErr = s.get(ctx, s.lease(g))
	}
	both.Wait()
	switch {
	case errors.Is(latchErr, zk.ErrNoNode):
		return nil, nil
	case latchErr != nil:
		return nil, latchErr
	}
	n := &node{
		s: s, mutex: mutex, contender: string(latch.data), guid: g, child: child, token: uint64(latch.stat.Czxid),
		foreign: true, made: time.Now(),
	}
	switch {
	case errors.Is(leaseErr, zk.ErrNoNode):
		return b.leaseless(ctx, n, &latch.stat)
	case errors.Is(leaseErr, zk.ErrNoAuth):
		b.latchOnly(n, &latch.stat)
		return n, nil
	}
	if leaseErr != nil {
		return nil, leaseErr
	}
	rec, err := decodeRecord(lease.data)
	if err != nil {
		b.latchOnly(n, &latch.stat)
		return n, nil
	}
	b.mu.Lock()
	b.adoptLocked(n, rec, &lease.stat)
	// The ensemble's clock gives a better estimate than the time of this read.
	if since := b.clock.latest(n.acquiredAt); since.Before(n.since) {
		n.since = since
	}
	b.mu.Unlock()
	return n, nil
}

// leaseless handles a latch node whose lease node was missing. It reads the latch node again, since
// this engine deletes both together. It returns nil if the latch node is gone. Otherwise the node
// is a JVM's.
func (b *Backend) leaseless(ctx context.Context, n *node, stat *zk.Stat) (*node, error) {
	_, err := n.s.get(ctx, n.s.latch(n.mutex, n.child))
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil
	case err != nil:
		return nil, err
	}
	b.latchOnly(n, stat)
	return n, nil
}

// latchOnly sets the state of a node without a readable lease node, such as that of a JVM's
// LeaderLatch. Its contender owns the mutex while the node is the first. Nobody knows for how long,
// so the TTL window is the session timeout.
func (b *Backend) latchOnly(n *node, stat *zk.Stat) {
	n.kind, n.bare, n.acquiredAt = kindOwner, true, stat.Ctime
	n.ttl = n.s.negotiated()
	n.since = time.Now()
}

// Owner implements simba.Backend.
func (b *Backend) Owner(ctx context.Context, mutex string) (simba.Tenure, simba.Seq, error) {
	h, err := b.inspectRequest(ctx, mutex)
	if err != nil || !h.owned {
		return simba.Tenure{}, 0, err
	}
	t := simba.Tenure{
		Owner: h.contender, Token: h.token, AcquiredAt: h.acquiredAt, Now: h.now,
		TTL: h.ttlLeft, Transition: h.transitionLeft, Waiters: h.waiters(),
		Session: b.boundSession(h.binding),
	}
	t.TTLAt = t.AcquiredAt + h.ttl.Milliseconds()
	t.TransitionAt = t.TTLAt + h.transition.Milliseconds()
	return t, 0, nil
}

// Check implements simba.Backend.
func (b *Backend) Check(ctx context.Context, mutex string, token uint64) (bool, simba.Seq, error) {
	h, err := b.inspectRequest(ctx, mutex)
	return err == nil && h.owned && h.token == token, 0, err
}

func (b *Backend) inspectRequest(ctx context.Context, mutex string) (h head, err error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return h, err
	}
	defer leave()
	err = b.retryRead(ctx, mutex, func(s *session) (err error) {
		h, err = b.inspect(ctx, s, mutex)
		return err
	})
	return h, b.failed(err)
}

// retryRead runs f with the session of a mutex. If the connection breaks, it runs f again. An f
// that may have changed something returns errUnknown, and retryRead does not run it again. The
// mutex "" stands for all mutexes.
func (b *Backend) retryRead(ctx context.Context, mutex string, f func(*session) error) error {
	for {
		s, err := b.current(ctx, mutex)
		if err == nil {
			err = f(s)
		}
		if err == nil || certain(err) || lasting(err) || errors.Is(err, errUnknown) || errors.Is(err, simba.ErrNotServed) || ctx.Err() != nil {
			return err
		}
	}
}

// Queue implements simba.Backend.
func (b *Backend) Queue(ctx context.Context, mutex string, count int) (list []simba.QueueEntry, _ simba.Seq, err error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer leave()
	err = b.retryRead(ctx, mutex, func(s *session) error {
		h, err := b.inspect(ctx, s, mutex)
		if err != nil {
			return err
		}
		names := h.names
		if h.owned {
			names = names[1:]
		}
		list, err = b.entries(ctx, s, mutex, names[:min(len(names), count)])
		return err
	})
	return list, 0, b.failed(err)
}

const readers = 32

// entries reads the nodes of waiters. It computes all waiting times for the same instant, so that
// an earlier waiter has a longer time.
func (b *Backend) entries(ctx context.Context, s *session, mutex string, names []string) ([]simba.QueueEntry, error) {
	found, now := make([]*simba.QueueEntry, len(names)), time.Now()
	err := each(len(names), func(i int) error {
		n, err := b.readNode(ctx, s, mutex, names[i])
		if err != nil || n == nil {
			return err
		}
		since := n.acquiredAt
		if latch, err := s.get(ctx, s.latch(mutex, names[i])); err == nil {
			since = latch.stat.Ctime
		}
		e := &simba.QueueEntry{
			Contender: n.contender,
			Waiting:   max(0, millis(b.clock.at(now)-since)),
			Blocked:   n.kind != kindPolling,
		}
		b.mu.Lock()
		if own := b.createdLocked(mutex, names[i]); own != nil {
			e.Blocked, e.Waiting = own.kind == kindBlocked, max(0, now.Sub(own.made))
		}
		b.mu.Unlock()
		found[i] = e
		return nil
	})
	if err != nil {
		return nil, err
	}
	var list []simba.QueueEntry
	for _, e := range found {
		if e != nil {
			e.Position = len(list) + 1
			list = append(list, *e)
		}
	}
	return list, nil
}

// each calls f with 0 to n-1. At most 32 calls (the constant readers) run at the same time. If
// several calls fail, the result is the error of the smallest i.
func each(n int, f func(i int) error) error {
	var all sync.WaitGroup
	errs := make([]error, n)
	slots := make(chan struct{}, readers)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = f(i)
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
