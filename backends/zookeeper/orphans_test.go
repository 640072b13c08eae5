package zookeeper

import (
	"context"
	"testing"

	"github.com/simba-resp/simba-resp"
)

// What is to be settled is noted by its place, with the version of its lease that its server knew. A follower that lists
// it meanwhile must not note it again as a stray, of which no version is known: who settled it second would take what the
// first one has kept, since its contender goes on with it elsewhere; or keep, first, what has to go.
func TestWhatIsNotedByItsPlaceIsNoStray(t *testing.T) {
	keeper, other := two(t)
	ctx := context.Background()
	for _, c := range []struct {
		mutex string
		after bool // the other server has written its lease since the request that had no answer
	}{{"kept", true}, {"gone", false}} {
		t.Run(c.mutex, func(t *testing.T) {
			k := nodeKey{c.mutex, "x"}
			getting(t, keeper, simba.AcquireRequest{Mutex: k.mutex, Contender: "o"}, simba.StatusAcquired)
			getting(t, keeper, simba.AcquireRequest{Mutex: k.mutex, Contender: k.contender}, simba.StatusQueued)
			n := keeper.nodeAt(k)
			until(t, keeper, "its place is written", func() bool { return n.writeAt.IsZero() })
			asksElsewhere := func() {
				getting(t, other, simba.AcquireRequest{Mutex: k.mutex, Contender: k.contender}, simba.StatusQueued)
				elsewhere := other.nodeAt(k)
				until(t, other, "its place is written by the other", func() bool { return elsewhere.writeAt.IsZero() })
			}
			unlock, err := keeper.lockKey(ctx, k) // so that nobody settles it but we
			must(t, err)
			defer unlock()
			if !c.after {
				asksElsewhere()
				must(t, keeper.reload(ctx, n))
			}
			keeper.mu.Lock()
			keeper.dropLocked(n)
			keeper.addOrphanLocked(k, n.guid, n.version)
			keeper.mu.Unlock()
			if c.after {
				asksElsewhere()
			}

			names, err := n.s.children(ctx, k.mutex)
			must(t, err)
			suspects := make(map[guid]bool)
			for range 3 {
				if keeper.orphanUnknownNodes(n.s, k.mutex, names, suspects) || keeper.hasOrphans(nodeKey{k.mutex, ""}) {
					t.Fatal("it is taken for a stray")
				}
			}
			must(t, keeper.reconcile(ctx, n.s, k))
			names, err = n.s.children(ctx, k.mutex)
			must(t, err)
			if left := len(names); left != 1 && !c.after || left != 2 && c.after {
				t.Errorf("there is %v", names)
			}
			if kept := keeper.nodeAt(k); (kept != nil) != c.after {
				t.Errorf("its keeper has %+v", kept)
			}
		})
	}
}
