package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"hash/crc32"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// head describes the first node of a mutex. The zero head means that the mutex has no node.
type head struct {
	names     []string // all nodes, in order
	child     string
	contender string
	token     uint64
	owned     bool   // the contender owns the mutex; false = it gets the mutex next
	blocked   bool   // the contender is blocked, or owns the mutex
	bare      bool   // a JVM's node, without a lease node
	idle      bool   // the mutex is not reserved for the polling waiter
	binding   string // the connection that the lease is bound to; "" = none, or of another server

	made            int64 // when the node was created, in Unix milliseconds on the ensemble's clock
	acquiredAt, now int64 // on the same clock
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

func (h *head) waiters() []string {
	if h.owned {
		return h.names[1:]
	}
	return h.names
}

// fresh lists the latch nodes. The list is at least as new as every answer that any server gave
// before the call.
func (b *Backend) fresh(ctx context.Context, s *session, mutex string) ([]string, error) {
	if err := s.sync(ctx); err != nil {
		return nil, err
	}
	return s.children(ctx, mutex)
}

// inspect returns the head of a fresh list. It lists without the mutex's lock.
func (b *Backend) inspect(ctx context.Context, s *session, m *mutex) (h head, err error) {
	var names []string
	m.apart(func() { names, err = b.fresh(ctx, s, m.name) })
	if err == nil {
		h, err = b.head(ctx, s, m, names)
	}
	return h, err
}

// head describes the first of the named nodes. If that node is gone, head lists the nodes again.
//
// If this server created the first node and its lease has ended, head deletes the node. So nobody
// sees a free mutex before that. Another server's node is that of the owner as long as it exists. If
// it says that its lease has ended, its server is late, cut off or dead.
func (b *Backend) head(ctx context.Context, s *session, m *mutex, names []string) (h head, err error) {
	for len(names) > 0 {
		if n := m.at(names[0]); n != nil {
			switch {
			case !n.isDecided():
				return h, errChanged
			case n.kind == kindBlocked:
				err = b.grant(m, n, reasonHandoff)
			case n.over():
				err = b.remove(ctx, m, n, n.event(simba.EventExpired, ""), nil)
			default:
				h = b.headOf(n)
				h.names = names
				return h, nil
			}
			if err != nil && !errors.Is(err, errChanged) {
				return h, err
			}
		} else if o, err := b.readNode(ctx, s, m.name, names[0]); o != nil || err != nil {
			if err == nil {
				h = *o
				h.names = names
			}
			return h, err
		}
		if names, err = s.children(ctx, m.name); err != nil {
			return h, err
		}
	}
	return h, nil
}

// headOf describes an entry of this server: that of the owner, or of a polling waiter.
func (b *Backend) headOf(n *entry) head {
	h := head{
		child: n.child, contender: n.contender, token: n.token, owned: n.kind == kindOwner, blocked: n.kind == kindOwner,
		idle: n.idle, binding: n.binding, ttl: n.ttl, transition: n.transition, acquiredAt: n.acquiredAt,
	}
	left := n.outcome(0)
	h.ttlLeft, h.transitionLeft = left.TTL, left.Transition
	h.now = n.acquiredAt + time.Since(n.since).Milliseconds()
	switch {
	case n.idle:
		h.transitionLeft = 0
	case !h.owned && !n.reservedUntil.IsZero():
		h.transitionLeft = max(0, time.Until(n.reservedUntil))
	case !h.owned:
		h.transitionLeft = b.HandoffWindow()
	}
	return h
}

// readNode reads another server's node from the ensemble; nil if it is gone.
func (b *Backend) readNode(ctx context.Context, s *session, mutex, child string) (*head, error) {
	g := guidOf(child)
	var latch, lease znode
	var latchErr, leaseErr error
	var both sync.WaitGroup
	both.Go(func() { latch, latchErr = s.get(ctx, s.latch(mutex, child)) })
	if leaseErr = zk.ErrNoNode; g != "" {
		lease, leaseErr = s.get(ctx, s.lease(g))
	}
	both.Wait()
	if latchErr == nil && errors.Is(leaseErr, zk.ErrNoNode) && g != "" {
		// Both nodes are deleted together. If the latch node is still there, it is a JVM's.
		latch, latchErr = s.get(ctx, s.latch(mutex, child))
	}
	switch {
	case errors.Is(latchErr, zk.ErrNoNode):
		return nil, nil
	case latchErr != nil:
		return nil, latchErr
	}
	h := &head{
		child: child, contender: string(latch.data), token: uint64(latch.stat.Czxid), owned: true, blocked: true,
		made: latch.stat.Ctime, acquiredAt: latch.stat.Ctime, now: b.storeNow(),
	}
	rec, ok := decodeRecord(lease.data)
	switch {
	case leaseErr != nil && !among(leaseErr, zk.ErrNoNode, zk.ErrNoAuth):
		return nil, leaseErr
	case !ok:
		// The node of a JVM's LeaderLatch, or a lease node that nobody can read. Nobody knows for how
		// long it owns the mutex, so the TTL window is the session timeout.
		h.bare, h.ttl = true, s.negotiated()
		h.ttlLeft, h.transitionLeft = h.ttl, h.ttl
		return h, nil
	}
	h.ttl, h.transition = millis(rec.TTL), millis(rec.Transition)
	h.owned = rec.Kind != kindPolling
	h.blocked, h.idle = h.owned, rec.Idle
	passed := time.Duration(0)
	switch {
	case rec.Idle:
		return h, nil
	case rec.Kind == kindPolling:
		h.transitionLeft = b.HandoffWindow()
		return h, nil
	case rec.Kind == kindOwner:
		h.acquiredAt = rec.Acquired
		passed = proxy.Between(h.acquiredAt, h.now)
		h.now = h.acquiredAt + passed.Milliseconds()
	default: // the server has yet to write when the windows began
		h.acquiredAt = h.now
	}
	h.ttlLeft, h.transitionLeft = max(0, h.ttl-passed), max(0, h.ttl+h.transition-passed)
	return h, nil
}

// storeNow returns a lower bound of the ensemble's clock, so that no lease is reported to end early.
func (b *Backend) storeNow() int64 {
	ms, _ := b.clock.Earliest(time.Now()) // without a reading it is so low that leases seem to be new
	return ms
}

// Owner implements simba.Backend.
func (b *Backend) Owner(ctx context.Context, mutex string) (simba.Tenure, simba.Seq, error) {
	h, err := with(ctx, b, mutex, b.inspect)
	if err != nil || !h.owned {
		return simba.Tenure{}, 0, err
	}
	t := simba.Tenure{
		Owner: h.contender, Token: h.token, AcquiredAt: h.acquiredAt, Now: h.now,
		TTL: h.ttlLeft, Transition: h.transitionLeft, Waiters: len(h.waiters()),
		Session: proxy.BoundSession(b.id, h.binding),
	}
	t.TTLAt = t.AcquiredAt + h.ttl.Milliseconds()
	t.TransitionAt = t.TTLAt + h.transition.Milliseconds()
	return t, 0, nil
}

// Check implements simba.Backend.
func (b *Backend) Check(ctx context.Context, mutex string, token uint64) (bool, simba.Seq, error) {
	h, err := with(ctx, b, mutex, b.inspect)
	return err == nil && h.owned && h.token == token, 0, err
}

// Queue implements simba.Backend.
func (b *Backend) Queue(ctx context.Context, name string, count int) ([]simba.QueueEntry, simba.Seq, error) {
	list, err := with(ctx, b, name, func(ctx context.Context, s *session, m *mutex) ([]simba.QueueEntry, error) {
		h, err := b.inspect(ctx, s, m)
		if err != nil {
			return nil, err
		}
		names := h.waiters()
		return b.entries(ctx, s, m, names[:min(len(names), count)])
	})
	return list, 0, err
}

// entries reads the nodes of waiters. It computes all waiting times for the same instant, so that
// an earlier waiter has a longer time.
func (b *Backend) entries(ctx context.Context, s *session, m *mutex, names []string) (list []simba.QueueEntry, err error) {
	found, now, storeNow := make([]simba.QueueEntry, len(names)), time.Now(), b.storeNow()
	err = each(len(names), func(i int) error {
		if n := m.at(names[i]); n != nil {
			if n.child != "" {
				found[i] = simba.QueueEntry{Contender: n.contender, Waiting: max(0, now.Sub(n.made)), Blocked: n.kind == kindBlocked}
			}
			return nil
		}
		h, err := b.readNode(ctx, s, m.name, names[i])
		if h != nil {
			found[i] = simba.QueueEntry{Contender: h.contender, Waiting: proxy.Between(h.made, storeNow), Blocked: h.blocked}
		}
		return err
	})
	for _, e := range found {
		if e.Contender != "" {
			e.Position = len(list) + 1
			list = append(list, e)
		}
	}
	return list, err
}

// each calls f with 0 to n-1. At most 32 calls run at the same time.
func each(n int, f func(i int) error) error {
	var all errgroup.Group
	all.SetLimit(32)
	for i := range n {
		all.Go(func() error { return f(i) })
	}
	return all.Wait()
}

// Scan implements simba.Backend. It lists mutexes in the order of their keys. The cursor is the next
// key, so a scan needs no state and misses no mutex.
func (b *Backend) Scan(ctx context.Context, r simba.ScanRequest) (simba.ScanPage, simba.Seq, error) {
	page, err := call(ctx, b, func(ctx context.Context) (page simba.ScanPage, err error) {
		s, err := b.slots[0].current(ctx, b)
		if err == nil {
			err = s.sync(ctx)
		}
		if err != nil {
			return page, err
		}
		return b.scan(ctx, s, r)
	})
	return page, 0, err
}

func (b *Backend) scan(ctx context.Context, s *session, r simba.ScanRequest) (page simba.ScanPage, err error) {
	names, err := s.list(ctx, s.mutexes())
	if err != nil {
		return page, err
	}
	var list []proxy.Scanned
	for _, name := range names {
		if mutex, ok := decodeName(name); ok && simba.CheckMutex(mutex) == nil && scanKey(mutex) >= r.Cursor {
			list = append(list, proxy.Scanned{Mutex: mutex, Key: scanKey(mutex)})
		}
	}
	list, page.Cursor = proxy.Page(list, cmp.Or(r.Count, 10))
	fits := make([]bool, len(list))
	err = each(len(list), func(i int) (err error) {
		if r.Match == nil || r.Match(list[i].Mutex) {
			fits[i], err = b.fits(ctx, s, list[i].Mutex, r)
		}
		return err
	})
	for i := range fits {
		if fits[i] {
			page.Mutexes = append(page.Mutexes, list[i].Mutex)
		}
	}
	return page, err
}

// fits reports whether a mutex has an owner or a queue, as the request demands.
func (b *Backend) fits(ctx context.Context, s *session, name string, r simba.ScanRequest) (bool, error) {
	names, err := s.children(ctx, name)
	if err != nil || len(names) == 0 {
		return false, err
	}
	if !r.Held && !r.Contended || !r.Held && len(names) > 1 {
		return true, nil
	}
	h, err := with(ctx, b, name, func(ctx context.Context, s *session, m *mutex) (head, error) { return b.head(ctx, s, m, names) })
	return (h.owned || !r.Held) && (len(h.waiters()) > 0 || !r.Contended), err
}

// scanKey returns the place of a mutex in a scan.
func scanKey(mutex string) uint64 { return uint64(crc32.ChecksumIEEE([]byte(mutex))) }
