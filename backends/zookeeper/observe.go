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

// head is the first node of a mutex as this server sees it, the zero head if there
// is none.
type head struct {
	names     []string // of all nodes, in order
	child     string
	contender string
	token     uint64
	owned     bool // it owns the mutex; else the mutex is kept for it
	bare      bool // it is a JVM's

	acquiredAt, now int64 // Unix milliseconds on the ensemble's clock
	ttl, transition time.Duration
	// What is left of the windows; of a mutex that is kept, transitionLeft is for how long.
	ttlLeft, transitionLeft time.Duration
}

// outcome is that of somebody who does not own the mutex.
func (h *head) outcome(status simba.Status) simba.Outcome {
	out := simba.Outcome{Status: status, Transition: h.transitionLeft}
	if h.owned {
		out.Owner, out.Token, out.TTL = h.contender, h.token, h.ttlLeft
	}
	return out
}

// position is the place in the queue of a node, 0 if it has none.
func (h *head) position(child string) int {
	i := slices.Index(h.names, child)
	if h.owned {
		return max(i, 0)
	}
	return i + 1
}

// waiters is how many nodes wait.
func (h *head) waiters() int {
	if h.owned {
		return len(h.names) - 1
	}
	return len(h.names)
}

// inspect returns the head as everybody sees it who was told something before.
func (b *Backend) inspect(ctx context.Context, s *session, mutex string) (head, error) {
	if err := s.sync(ctx, s.mutexes()); err != nil {
		return head{}, err
	}
	names, err := s.children(ctx, mutex)
	if err != nil {
		return head{}, err
	}
	return b.head(ctx, s, mutex, names)
}

// head finds out about the first of those nodes. If it is gone by now, it looks again.
func (b *Backend) head(ctx context.Context, s *session, mutex string, names []string) (head, error) {
	for {
		if len(names) == 0 {
			return head{}, nil
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

// headOf describes a node as the first. That its lease is over is true for everybody when it returns so.
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

// conclude makes it true that a lease is over which is so by a clock, before anybody is told: else a renewal that is on its
// way may go on with it. It says so in the lease, if nobody has done so or changed it; no more, since the clock may be the ensemble's, and
// that may step. First its keeper has a moment to delete it. It returns zk.ErrNoNode if that was done,
// zk.ErrBadVersion if it is not as n says any more.
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
	// decideWithin is how long we wait for a keeper to write what came of a new first
	// node. After that it is taken for an owner's: its keeper was cut off, most likely
	// after it told so.
	decideWithin = 10 * ownerWriteDelay
	decidePause  = 5 * time.Millisecond
)

// decided returns the first node when it is known whether it is an owner's. For one that we keep, or have renewed, we know
// better than the ensemble how much is left, unless another server has renewed it.
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
		open := n.undecidedLocked()
		b.mu.Unlock()
		if open && n.foreign {
			names, pzxid, err := s.childrenAt(ctx, mutex)
			if err != nil {
				return nil, err
			}
			if len(names) != 0 && names[0] == child && pzxid == int64(n.token) {
				n.kind = kindOwner // it was the first from the beginning: nothing has changed since
				return n, nil
			}
		}
		b.mu.Lock()
		if open && n.foreign && time.Now().After(deadline) {
			if n.kind == kindBlocked && !n.over { // since it became the first, and nobody tells when
				n.since = time.Now()
			}
			n.kind, open = kindOwner, false
		}
		b.mu.Unlock()
		if !open {
			return n, nil
		}
		select {
		case <-time.After(decidePause):
		case <-ctx.Done():
			return nil, errNoAnswer
		}
	}
}

// openLocked reports whether it is for the node's keeper to say what came of it.
func (n *node) undecidedLocked() bool {
	return n.kind == kindAsking || n.kind == kindBlocked && n.server == n.creator
}

// knownLocked returns the node with that name if this server counts its lease by its own clock, else nil.
func (b *Backend) countedLocked(mutex, child string) *node {
	if m := b.mutexes[mutex]; m != nil {
		if n := m.guids[guidOf(child)]; n != nil && (!n.foreign || n.kind == kindOwner && n.server == b.id) {
			return n
		}
	}
	return nil
}

// ownLocked returns the node with that name if this server keeps it, else nil.
func (b *Backend) createdLocked(mutex, child string) *node {
	if m := b.mutexes[mutex]; m != nil {
		if n := m.guids[guidOf(child)]; n != nil && !n.foreign {
			return n
		}
	}
	return nil
}

// headLocked is the head that a node makes when it is the first.
func (b *Backend) headLocked(n *node) head {
	now := time.Now()
	h := head{child: n.child, contender: n.contender, token: n.token, bare: n.bare, now: b.clock.at(now)}
	switch {
	case n.kind == kindPolling && !n.reservedUntil.IsZero():
		h.transitionLeft = max(0, n.reservedUntil.Sub(now))
	case n.kind == kindPolling && n.idle:
	case n.kind == kindPolling:
		h.transitionLeft = b.HandoffWindow()
	case n.kind == kindBlocked || n.kind == kindAsking: // it is being granted
		h.transitionLeft = n.s.negotiated()
	default:
		h.ttl, h.transition = n.ttl, n.transition
		h.ttlLeft, h.transitionLeft = n.left(now)
		h.owned = h.transitionLeft > 0 && !n.over
		h.acquiredAt, h.now = n.acquiredAt, n.acquiredAt+now.Sub(n.since).Milliseconds()
	}
	return h
}

// foreign reads a node that another server or a JVM keeps; nil if it is gone.
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
	// How much is left, as far as one can tell from afar.
	if since := b.clock.latest(n.acquiredAt); since.Before(n.since) {
		n.since = since
	}
	b.mu.Unlock()
	return n, nil
}

// leaseless describes a node that was read and whose lease was not there; nil if it is gone as well by
// now: one of ours goes with its lease, so that one was none of a JVM.
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

// latchOnly describes a node without a lease, as a JVM's LeaderLatch makes it: it owns
// the mutex while it is the first. How long that will be nobody knows; who asks again after
// a session's timeout will see.
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

// observe is inspect as a request of its own.
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

// ask makes a request about a mutex ("" = all) that only reads, or else says errUnknown, again if the connection breaks meanwhile.
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

// readers is how many nodes are read at a time.
const readers = 32

// entries reads about nodes that wait. How long each has waited is counted up to one instant, so that the
// first has waited longest.
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

// each calls f for 0 to n-1, some at a time, and returns their first error.
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
