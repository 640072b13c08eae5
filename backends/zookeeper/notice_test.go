package zookeeper

import (
	"context"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// subscriberOf is a simba.Notices with one subscribed channel.
type subscriberOf struct {
	channel string
	said    chan string
}

func (e subscriberOf) Publish(channel, payload string) int {
	if channel != e.channel {
		return 0
	}
	e.said <- payload
	return 1
}
func (e subscriberOf) Subscribed(channel string) bool { return channel == e.channel }
func (subscriberOf) SubscribedPattern(string) bool    { return false }
func (subscriberOf) Any() bool                        { return true }

func TestReleasedNoticeNamesAnUnseenOwner(t *testing.T) {
	srv := stores.ZooKeeper(t)
	ctx := context.Background()
	sub := subscriberOf{simba.ContenderChannel("m", "x"), make(chan string, 10)}
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
	hears := func(what string) {
		t.Helper()
		select {
		case got := <-sub.said:
			if got != simba.ReleasedNotice("o") {
				t.Errorf("%s the subscriber receives %q, want the release of o", what, got)
			}
		case <-time.After(need.Hang):
			t.Errorf("%s the subscriber receives nothing", what)
		}
	}
	hears("when the mutex is reserved for it")
	_, err = here.Subscribed(ctx, sub.channel, false)
	must(t, err)
	hears("as it subscribes again")
}
