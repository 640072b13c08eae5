package zookeeper

import (
	"context"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

func TestAMutexThatIsToldFreeIsForTheNextWhoAsks(t *testing.T) {
	srv := stores.ZooKeeper(t)
	ctx := context.Background()
	b, err := Open(ctx, Options{Servers: srv.Addr, Notices: ears{}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "a", TTL: 200 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	open, err := b.hold(ctx, place{"m", "a"}) // so its node stays
	if err != nil {
		t.Fatal(err)
	}
	for owner := "a"; owner == "a"; {
		tenure, _, err := b.Owner(ctx, "m")
		if err != nil {
			t.Fatal(err)
		}
		owner = tenure.Owner
	}
	acquired := make(chan simba.Outcome, 1)
	go func() {
		defer close(acquired)
		out, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "b", TTL: time.Minute})
		if err != nil {
			t.Error(err)
			return
		}
		acquired <- out
	}()
	for n := 0; n < 2 && len(acquired) == 0; { // on a slow machine the node may be gone already
		s, err := b.current(ctx, "m")
		if err != nil {
			t.Fatal(err)
		}
		names, err := s.children(ctx, "m")
		if err != nil {
			t.Fatal(err)
		}
		n = len(names)
	}
	open()
	if out := <-acquired; out.Status != simba.StatusAcquired {
		t.Errorf("b: %+v", out)
	}
}
