package zookeeper

import (
	"context"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

func TestReleasedNoticeNamesAnUnseenOwner(t *testing.T) {
	srv := stores.ZooKeeper(t)
	ctx := context.Background()
	channel := simba.ContenderChannel("m", "x")
	sub := conformance.NewBroker(channel)
	here, err := Open(ctx, Options{Servers: srv.Addr, Notices: sub, HandoffWindow: time.Minute, QueueGrace: time.Minute})
	must(t, err)
	defer here.Close()
	there, err := Open(ctx, Options{Servers: srv.Addr, Notices: stubNotices{}})
	must(t, err)
	defer there.Close()
	w := newWatcher("m")
	here.mu.Lock()
	here.mutexLocked("m").watcher = w // it lists the nodes only when runWatcher begins
	here.mu.Unlock()
	acquireAs(t, there, simba.AcquireRequest{Mutex: "m", Contender: "o"}, simba.StatusAcquired)
	acquireAs(t, here, simba.AcquireRequest{Mutex: "m", Contender: "x"}, simba.StatusQueued)
	if ok, _, err := there.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "o"}); !ok || err != nil {
		t.Fatalf("RELEASE of o: %v, %v; want true", ok, err)
	}
	here.background(func() { here.runWatcher(w) })
	hears := func(what string, times int) {
		t.Helper()
		until(t, here, what+" the subscriber receives the release of o", func() bool {
			return sub.Count(channel, simba.ReleasedNotice("o")) == times
		})
	}
	hears("when the mutex is reserved for it", 1)
	_, err = here.Subscribed(ctx, channel, false)
	must(t, err)
	hears("as it subscribes again", 2)
}
