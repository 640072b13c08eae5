package zookeeper

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/need"
)

// In these tests lease nodes hold bytes that no server writes.

func overwriteLease(t *testing.T, n *node) {
	t.Helper()
	_, err := do(context.Background(), n.s, writes, func(c *zk.Conn) (*zk.Stat, error) {
		return c.Set(n.s.lease(n.guid), []byte("c1"), -1)
	})
	must(t, err)
}

func TestInvalidLeaseNodeIsRewrittenByItsCreator(t *testing.T) {
	creator, other := twoServers(t)
	ctx := context.Background()
	k := nodeKey{"m", "a"}
	acquireAs(t, creator, simba.AcquireRequest{Mutex: k.mutex, Contender: k.contender}, simba.StatusAcquired)
	n := creator.nodeAt(k)
	until(t, creator, "the lease node is written and watched", func() bool { return n.writeAt.IsZero() && n.watchAt.IsZero() })
	overwriteLease(t, n)
	for end := time.Now().Add(need.Hang); ; {
		lease, err := n.s.get(ctx, n.s.lease(n.guid))
		must(t, err)
		rec, err := decodeRecord(lease.data)
		if err == nil && rec.Kind == kindOwner && rec.Contender == k.contender {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the lease node still has the data %q, error %v", lease.data, err)
		}
	}
	if out, err := other.Guard(ctx, simba.GuardRequest{Mutex: k.mutex, Contender: k.contender, TTL: longLease}); err != nil || out.Status != simba.StatusRenewed || out.Token != n.token {
		t.Errorf("GUARD of the owner by the other server: %+v, %v; want renewed, token %d", out, err, n.token)
	}
}

func TestRenewalOverwritesAnInvalidLeaseNode(t *testing.T) {
	b, _ := twoServers(t)
	acquireAs(t, b, simba.AcquireRequest{Mutex: "m", Contender: "a"}, simba.StatusAcquired)
	overwriteLease(t, b.nodeAt(nodeKey{"m", "a"}))
	if out, err := b.Guard(context.Background(), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: longLease}); err != nil || out.Status != simba.StatusRenewed {
		t.Errorf("GUARD of the owner: %+v, %v; want renewed", out, err)
	}
}

func TestOrphanIsDeletedDespiteAnInvalidLeaseNode(t *testing.T) {
	b, _ := twoServers(t)
	ctx := context.Background()
	k := nodeKey{"m", "a"}
	acquireAs(t, b, simba.AcquireRequest{Mutex: k.mutex, Contender: k.contender}, simba.StatusAcquired)
	unlock, err := b.lockKey(ctx, k)
	must(t, err)
	defer unlock()
	n := b.nodeAt(k)
	overwriteLease(t, n)
	b.mu.Lock()
	version := n.version
	b.dropLocked(n)
	b.mu.Unlock()
	b.addOrphan(k, n.guid, version)
	must(t, b.reconcile(ctx, n.s, k))
	names, err := n.s.children(ctx, k.mutex)
	if err != nil || len(names) != 0 {
		t.Errorf("the mutex still has the nodes %v, error %v; want none", names, err)
	}
	if _, err := n.s.get(ctx, n.s.lease(n.guid)); !errors.Is(err, zk.ErrNoNode) {
		t.Errorf("get of the orphan's lease node: %v; want ErrNoNode", err)
	}
}
