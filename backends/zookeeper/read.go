package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"hash/crc32"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// head describes the first node of a mutex. The zero head means that the mutex has no node.
type head struct {
	record
	names []string // all nodes, in order
	child string
	token uint64
	bare  bool  // a JVM's node, without a lease node
	here  bool  // this server created it
	mark  int64 // see proxy.State.Mark
	// made is when the node was created. made and now are in Unix milliseconds on the ensemble's clock.
	made, now int64
}

// owned reports whether the contender owns the mutex. Otherwise the contender, if any, gets it next.
// A blocked waiter of this server owns it only when the engine has granted it.
func (h head) owned() bool { return h.Kind == kindOwner || h.Kind == kindBlocked && !h.here }

// state returns the state of the mutex for the engine.
func (h head) state() proxy.State {
	waiters := h.waiters()
	s := proxy.State{Now: h.now, Waiters: len(waiters), Elsewhere: !h.here}
	s.Position = func(contender string) int { return slices.Index(waiters, older(waiters, contender, "")) + 1 }
	switch {
	case h.owned():
		s.Owner, s.Token, s.Live = h.Contender, h.token, true
		s.AcquiredAt, s.TTLAt, s.TransitionAt, s.Mark = h.Acquired, h.Acquired+h.TTL, h.Acquired+h.TTL+h.Transition, h.mark
	case h.child != "":
		s.Next, s.Live, s.NextOwns = h.Contender, !h.here, h.Kind == kindBlocked
	}
	return s
}

// known returns the latch nodes without I/O while a watch is set, otherwise none. A change fires the
// watch first. A node that was the first is still the first.
func (st *store) known(mutex string) []string {
	st.mu.Lock()
	defer st.mu.Unlock()
	if w := st.watched[mutex]; w != nil && len(w.changed) == 0 {
		return slices.Clone(w.names)
	}
	return nil
}

// inspect returns the head of a list. If fresh is true, the list is at least as new as every answer
// that any server gave before the call, and inspect lists without the mutex's lock.
func (st *store) inspect(ctx context.Context, s *session, m *mutex, fresh bool) (h head, err error) {
	var names []string
	if fresh {
		m.apart(func() {
			if err = s.sync(ctx); err == nil {
				names, err = s.children(ctx, m.name)
			}
		})
	} else if names = st.known(m.name); len(names) == 0 {
		names, err = s.children(ctx, m.name)
	}
	if err == nil {
		h, err = st.head(ctx, s, m, names)
	}
	return h, err
}

// Read implements proxy.Store.
func (st *store) Read(ctx context.Context, name string, settled bool) (proxy.State, error) {
	h, err := step(ctx, st, name, func(ctx context.Context, s *session, m *mutex) (head, error) { return st.inspect(ctx, s, m, settled) })
	return h.state(), err
}

// head describes the first of the named nodes. If that node is gone, head lists the nodes again.
//
// If this server created the first node and its lease has ended, head deletes the node. So nobody
// sees a free mutex before that. Another server's node is that of the owner as long as it exists. If
// it says that its lease has ended, its server is late, cut off or dead.
func (st *store) head(ctx context.Context, s *session, m *mutex, names []string) (h head, err error) {
	for err == nil && len(names) > 0 {
		n := m.at(names[0])
		switch {
		case n == nil:
			if o, err := st.readNode(ctx, s, m.name, names[0]); err != nil {
				return h, err
			} else if o != nil {
				o.names = names
				return *o, nil
			}
		case !n.isDecided():
			return h, errChanged
		case !n.over():
			n.first = true
			h = st.headOf(m, n)
			h.names = names
			return h, nil
		default:
			if err = st.expire(ctx, m, n); err != nil {
				return h, err
			}
		}
		names, err = s.children(ctx, m.name)
	}
	return h, err
}

func (h head) waiters() []string {
	if h.owned() && len(h.names) > 0 {
		return h.names[1:]
	}
	return h.names
}

// headOf describes an entry of this server.
func (st *store) headOf(m *mutex, n *entry) head {
	return head{
		record: *n.record(m.name), child: n.child, token: n.token, here: true,
		now: n.acquiredAt + time.Since(n.since).Milliseconds(), mark: n.mark(),
	}
}

// readNode reads another server's node from the ensemble; nil if it is gone. Both nodes are created and
// deleted together. So a latch node without a lease node is a JVM's, and the lease node has the czxid
// of the latch node.
func (st *store) readNode(ctx context.Context, s *session, mutex, child string) (*head, error) {
	var node znode
	err := zk.ErrNoNode
	if g := guidOf(child); g != "" {
		node, err = s.get(ctx, s.lease(g))
	}
	rec, ok := decodeRecord(node.data)
	if !ok && (err == nil || among(err, zk.ErrNoNode, zk.ErrNoAuth)) {
		if node, err = s.get(ctx, s.latch(mutex, child)); errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	h := &head{record: rec, child: child, token: uint64(node.stat.Czxid), made: node.stat.Ctime, now: st.storeNow()}
	if !ok {
		// The node of a JVM's LeaderLatch, or a lease node that nobody can read. The TTL window is
		// the session timeout, from now on: nobody knows for how long it owns the mutex.
		h.bare, h.now = true, h.made
		h.record = record{Contender: string(node.data), Kind: kindOwner, TTL: s.negotiated().Milliseconds(), Acquired: h.made}
	}
	if h.Kind == kindBlocked { // its server has yet to write when the windows began
		h.Acquired = h.now
	}
	h.now = max(h.now, h.Acquired)
	return h, nil
}

// storeNow returns a lower bound of the ensemble's clock, so that no lease is reported to end early.
func (st *store) storeNow() int64 {
	ms, _ := st.clock.Earliest(time.Now()) // without a reading it is so low that leases seem to be new
	return ms
}

// Waiters implements proxy.Queue. It computes all waiting times for the same instant, so that an
// earlier waiter has a longer time.
func (st *store) Waiters(ctx context.Context, name string, count int) (list []simba.QueueEntry, err error) {
	return step(ctx, st, name, func(ctx context.Context, s *session, m *mutex) ([]simba.QueueEntry, error) {
		h, err := st.inspect(ctx, s, m, true)
		names := h.waiters()
		names = names[:min(len(names), count)]
		found, now := make([]simba.QueueEntry, len(names)), st.storeNow()
		m.apart(func() { // a long queue takes long
			err = cmp.Or(err, each(len(names), func(i int) error {
				h, err := st.readNode(ctx, s, m.name, names[i])
				if h != nil {
					found[i] = simba.QueueEntry{Contender: h.Contender, Waiting: proxy.Between(h.made, now), Blocked: h.Kind != kindPolling}
				}
				return err
			}))
		})
		found = slices.DeleteFunc(found, func(e simba.QueueEntry) bool { return e.Contender == "" })
		for i := range found {
			found[i].Position = i + 1
		}
		return found, err
	})
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

// Scan implements proxy.Store. The States of the mutexes that it returns may be empty.
func (st *store) Scan(ctx context.Context, from, to uint64, limit int) ([]proxy.Scanned, error) {
	return call(ctx, st, func(ctx context.Context) (found []proxy.Scanned, err error) {
		s, err := st.slots[0].current(ctx, st)
		if err == nil {
			err = s.sync(ctx)
		}
		var names []string
		if err == nil {
			names, err = s.list(ctx, s.mutexes())
		}
		for _, mutex := range decodeNames(names) {
			if key := st.ScanKey(mutex); from <= key && key <= to {
				found = append(found, proxy.Scanned{Mutex: mutex, Key: key})
			}
		}
		slices.SortFunc(found, func(a, b proxy.Scanned) int { return cmp.Compare(a.Key, b.Key) })
		if limit > 0 {
			found = found[:min(limit, len(found))]
		}
		if err == nil {
			err = each(len(found), func(i int) error {
				state, err := st.Read(ctx, found[i].Mutex, true)
				found[i].State = state
				return err
			})
		}
		return found, err
	})
}

// ScanKey implements proxy.Store.
func (st *store) ScanKey(mutex string) uint64 { return uint64(crc32.ChecksumIEEE([]byte(mutex))) }
