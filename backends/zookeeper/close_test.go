package zookeeper

import (
	"context"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

func TestCloseEndsNoTenureThatAnotherServerToldOf(t *testing.T) {
	srv := stores.ZooKeeper(t)
	for name, holds := range map[string]bool{"of a server that keeps a lease": true, "of one that keeps none": false} {
		t.Run(name, func(t *testing.T) { closesBesideATenure(t, srv.Addr, holds) })
	}
}

// closesBesideATenure closes a server while a waiter whose node it keeps has come to own the mutex through another one.
func closesBesideATenure(t *testing.T, addr string, holds bool) {
	t.Helper()
	ctx := context.Background()
	var servers [2]*Backend
	for i := range servers {
		b, err := Open(ctx, Options{Servers: addr, Notices: ears{}, Sessions: 1})
		must(t, err)
		defer b.Close()
		servers[i] = b
	}
	here, there := servers[0], servers[1]
	p := place{"closed", "x"}
	if holds {
		p.mutex = "closed-with-a-lease"
		getting(t, here, simba.AcquireRequest{Mutex: "held", Contender: "h"}, simba.StatusAcquired)
	}
	getting(t, there, simba.AcquireRequest{Mutex: p.mutex, Contender: "o"}, simba.StatusAcquired)
	getting(t, here, simba.AcquireRequest{Mutex: p.mutex, Contender: p.contender}, simba.StatusQueued)
	getting(t, here, simba.AcquireRequest{Mutex: p.mutex, Contender: "w"}, simba.StatusQueued)
	n, w := here.nodeAt(p), here.nodeAt(place{p.mutex, "w"})
	until(t, here, "their leases are written", func() bool { return n.dirty.IsZero() && w.dirty.IsZero() })
	for _, n := range []*node{n, w} {
		open, err := here.hold(ctx, n.place()) // so it does not learn of what follows
		must(t, err)
		defer open()
	}
	here.mu.Lock()
	rec, version := w.recordLocked(time.Now()), w.version
	here.mu.Unlock()
	_, err := w.s.change(ctx, w, rec, version) // as a write of its own that has no answer yet
	must(t, err)
	if ok, _, err := there.Release(ctx, simba.ReleaseRequest{Mutex: p.mutex, Contender: "o"}); !ok || err != nil {
		t.Fatalf("o: %v, %v", ok, err)
	}
	getting(t, there, simba.AcquireRequest{Mutex: p.mutex, Contender: p.contender}, simba.StatusAcquired)
	must(t, here.Close())
	if o, _, err := there.Owner(ctx, p.mutex); err != nil || o.Owner != p.contender || o.Token != n.token {
		t.Errorf("the owner is %+v, %v", o, err)
	}
	if q, _, err := there.Queue(ctx, p.mutex, 10); err != nil || len(q) != 0 {
		t.Errorf("there wait %+v, %v", q, err)
	}
}
