package zookeeper

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// closeAfterRenewal opens two servers, here and there. o owns a mutex through the server there, and
// x queues for it at the server here. So the server here creates x's node. When o has released the
// mutex, x becomes the owner through the server there. The server here does not know that yet. The
// caller closes it.
func closeAfterRenewal(t *testing.T, addr, mutex string, ttl time.Duration, before func(here *Backend)) (here, there *Backend, n *node) {
	t.Helper()
	ctx := context.Background()
	for _, b := range []**Backend{&here, &there} {
		opened, err := Open(ctx, Options{Servers: addr, Notices: stubNotices{}, Sessions: 1})
		must(t, err)
		t.Cleanup(func() { opened.Close() })
		*b = opened
	}
	x := simba.AcquireRequest{Mutex: mutex, Contender: "x", TTL: ttl}
	acquireAs(t, there, simba.AcquireRequest{Mutex: mutex, Contender: "o"}, simba.StatusAcquired)
	acquireAs(t, here, x, simba.StatusQueued)
	n = createdNodeOf(t, here, nodeKey{mutex, x.Contender})
	before(here)
	if ok, _, err := there.Release(ctx, simba.ReleaseRequest{Mutex: mutex, Contender: "o"}); !ok || err != nil {
		t.Fatalf("RELEASE of o at the other server: %v, %v; want true", ok, err)
	}
	if out, _, err := there.Acquire(ctx, x); err != nil || out.Status != simba.StatusAcquired || out.Token != n.token {
		t.Fatalf("ACQUIRE of x at the other server: %+v, %v; want acquired with the token of x's node", out, err)
	}
	return here, there, n
}

// createdNodeOf returns a waiter's node when its lease node is written. It keeps the key's lock
// until the test ends, so that the server reads no later change.
func createdNodeOf(t *testing.T, b *Backend, k nodeKey) *node {
	t.Helper()
	n := b.nodeAt(k)
	until(t, b, "the waiter's lease node is written", func() bool { return n.writeAt.IsZero() })
	unlock, err := b.lockKey(context.Background(), k)
	must(t, err)
	t.Cleanup(unlock)
	return n
}

func TestCloseEndsNoTenureAcknowledgedElsewhere(t *testing.T) {
	srv := stores.ZooKeeper(t)
	ctx := context.Background()
	for name, holds := range map[string]bool{"the closed server has a lease": true, "the closed server has no lease": false} {
		t.Run(name, func(t *testing.T) {
			mutex := t.Name()
			here, there, n := closeAfterRenewal(t, srv.Addr, mutex, longLease, func(here *Backend) {
				if holds {
					acquireAs(t, here, simba.AcquireRequest{Mutex: "held", Contender: "h"}, simba.StatusAcquired)
				}
				acquireAs(t, here, simba.AcquireRequest{Mutex: mutex, Contender: "w"}, simba.StatusQueued)
				w := createdNodeOf(t, here, nodeKey{mutex, "w"})
				here.mu.Lock()
				rec, version := w.recordLocked(time.Now()), w.version
				here.mu.Unlock()
				// The test writes in place of the server here, as if that write had no answer.
				_, err := w.s.change(ctx, w, rec, version)
				must(t, err)
			})
			must(t, here.Close())
			owns(t, there, n)
			if q, _, err := there.Queue(ctx, mutex, 10); err != nil || len(q) != 0 {
				t.Errorf("QUEUE at the other server after Close: %+v, %v; want nothing", q, err)
			}
		})
	}
	t.Run("the closed server has no right to delete its nodes", func(t *testing.T) {
		here, there, n := closeAfterRenewal(t, srv.Addr, t.Name(), longLease, func(*Backend) {})
		s, err := there.current(ctx, n.mutex)
		must(t, err)
		_, err = s.conn.SetACL(s.mutex(n.mutex), zk.WorldACL(zk.PermAll&^zk.PermDelete), -1)
		must(t, err)
		must(t, here.Close())
		owns(t, there, n)
	})
	t.Run("an ended lease leaves no node", func(t *testing.T) {
		here, there, n := closeAfterRenewal(t, srv.Addr, t.Name(), 200*time.Millisecond, func(*Backend) {})
		need.Await(t, "x's lease ends", func() bool {
			o, _, err := there.Owner(ctx, n.mutex)
			must(t, err)
			return o.Owner == ""
		})
		must(t, here.Close())
		acquireAs(t, there, simba.AcquireRequest{Mutex: n.mutex, Contender: "y", NoQueue: true}, simba.StatusAcquired)
	})
}

// owns checks that the contender of a node owns the mutex.
func owns(t *testing.T, b *Backend, n *node) {
	t.Helper()
	if o, _, err := b.Owner(context.Background(), n.mutex); err != nil || o.Owner != n.contender || o.Token != n.token {
		t.Errorf("OWNER: %+v, %v; want %s with token %d", o, err, n.contender, n.token)
	}
}
