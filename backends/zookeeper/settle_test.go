package zookeeper

import (
	"context"
	"slices"
	"testing"

	"github.com/simba-resp/simba-resp"
)

// A node whose end had no answer is noted by its place, and as a stray when a follower sees it. Its contender goes on
// with it elsewhere, so who settles first keeps it, and its keeper writes its lease soon. Who settles later must leave it.
func TestWhatIsKeptAnewIsNoGhostForWhoSettlesLater(t *testing.T) {
	keeper, other := two(t)
	ctx := context.Background()
	for name, strayFirst := range map[string]bool{"as a stray": false, "by its place": true} {
		t.Run(name, func(t *testing.T) {
			p := place{"m-" + name[:2], "x"}
			order := []place{p, {p.mutex, ""}}
			if strayFirst {
				slices.Reverse(order)
			}
			getting(t, keeper, simba.AcquireRequest{Mutex: p.mutex, Contender: "o"}, simba.StatusAcquired)
			getting(t, keeper, simba.AcquireRequest{Mutex: p.mutex, Contender: p.contender}, simba.StatusQueued)
			n := keeper.nodeAt(p)
			until(t, keeper, "its place is written", func() bool { return n.dirty.IsZero() })
			for _, noted := range order { // nobody but we settle it
				open, err := keeper.hold(ctx, noted)
				must(t, err)
				defer open()
			}
			keeper.mu.Lock()
			version := n.version
			keeper.dropLocked(n)
			keeper.mu.Unlock()
			keeper.haunt(p, n.guid, version)
			keeper.haunt(place{p.mutex, ""}, n.guid, 0)

			getting(t, other, simba.AcquireRequest{Mutex: p.mutex, Contender: p.contender}, simba.StatusQueued)
			elsewhere := other.nodeAt(p)
			until(t, other, "its place is written by the other", func() bool { return elsewhere.dirty.IsZero() })
			must(t, keeper.settle(ctx, n.s, order[0]))
			kept := keeper.nodeAt(p)
			if kept == nil || kept.guid != n.guid {
				t.Fatalf("its keeper has %+v", kept)
			}
			keeper.mu.Lock()
			keeper.markLocked(kept, 0) // as when its turn begins
			keeper.mu.Unlock()
			must(t, keeper.mark(ctx, kept))
			must(t, keeper.settle(ctx, n.s, order[1]))

			names, err := n.s.children(ctx, p.mutex)
			if err != nil || !slices.Contains(names, n.child) {
				t.Errorf("it is gone, there is %v, %v", names, err)
			}
			if now := keeper.nodeAt(p); now != kept {
				t.Errorf("its keeper has %+v now", now)
			}
		})
	}
}
