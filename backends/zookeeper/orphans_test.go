package zookeeper

import (
	"context"
	"testing"

	"github.com/simba-resp/simba-resp"
)

// A server records an orphan with the known version of its lease node. A watcher that lists the
// orphan must not record it again without a version. With the second record, the server could keep
// or delete the wrong node.
func TestOrphanIsNotRecordedTwice(t *testing.T) {
	creator, other := twoServers(t)
	ctx := context.Background()
	for _, c := range []struct {
		mutex string
		after bool // x asks the other server after the orphan was recorded, not before
	}{{"kept", true}, {"gone", false}} {
		t.Run(c.mutex, func(t *testing.T) {
			k := nodeKey{c.mutex, "x"}
			acquireAs(t, creator, simba.AcquireRequest{Mutex: k.mutex, Contender: "o"}, simba.StatusAcquired)
			acquireAs(t, creator, simba.AcquireRequest{Mutex: k.mutex, Contender: k.contender}, simba.StatusQueued)
			n := creator.nodeAt(k)
			until(t, creator, "the creator has written x's lease node", func() bool { return n.writeAt.IsZero() })
			asksElsewhere := func() {
				acquireAs(t, other, simba.AcquireRequest{Mutex: k.mutex, Contender: k.contender}, simba.StatusQueued)
				elsewhere := other.nodeAt(k)
				until(t, other, "the other server has written x's lease node", func() bool { return elsewhere.writeAt.IsZero() })
			}
			unlock, err := creator.lockKey(ctx, k) // so that only the test reconciles the orphan
			must(t, err)
			defer unlock()
			if !c.after {
				asksElsewhere()
				must(t, creator.reload(ctx, n))
			}
			creator.mu.Lock()
			creator.dropLocked(n)
			creator.addOrphanLocked(k, n.guid, n.version)
			creator.mu.Unlock()
			if c.after {
				asksElsewhere()
			}

			names, err := n.s.children(ctx, k.mutex)
			must(t, err)
			suspects := make(map[guid]bool)
			for range 3 {
				if creator.orphanUnknownNodes(n.s, k.mutex, names, suspects) || creator.hasOrphans(nodeKey{k.mutex, ""}) {
					t.Fatal("the orphan was recorded a second time")
				}
			}
			must(t, creator.reconcile(ctx, n.s, k))
			names, err = n.s.children(ctx, k.mutex)
			must(t, err)
			if left := len(names); left != 1 && !c.after || left != 2 && c.after {
				t.Errorf("the nodes after reconcile: %v; want o's node, and x's too: %v", names, c.after)
			}
			if kept := creator.nodeAt(k); (kept != nil) != c.after {
				t.Errorf("nodeAt for x at the creator: %+v; want a node: %v", kept, c.after)
			}
		})
	}
}
