package zookeeper

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// stubNotices is a simba.Notices with subscribers of mutex m and of every pattern.
type stubNotices struct{}

func (stubNotices) Publish(string, string) int     { return 1 }
func (stubNotices) Subscribed(channel string) bool { return channel == "simba:{m}" }
func (stubNotices) SubscribedPattern(string) bool  { return true }
func (stubNotices) Any() bool                      { return true }

func TestDeletedMutexIsNotWatched(t *testing.T) {
	srv := stores.ZooKeeper(t)
	ctx := context.Background()
	b, err := Open(ctx, Options{Servers: srv.Addr, Notices: stubNotices{}})
	must(t, err)
	defer b.Close()
	for i := range 100 {
		if _, err := b.Subscribed(ctx, fmt.Sprintf("simba:{m}:c%d", i), false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Subscribed(ctx, "simba:*", true); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		m := fmt.Sprintf("job-%d", i)
		if _, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: m, Contender: "a", TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: m, Contender: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, b, "the server knows only m, without listeners", func() bool {
		m := b.mutexes["m"]
		return len(b.mutexes) == 1 && m != nil && m.watcher != nil && len(m.watcher.listeners) == 0
	})
}

func TestNoLeaseDependsOnTheEnsemblesClock(t *testing.T) {
	var b Backend
	now := time.Now()
	n := &node{since: now.Add(-20 * time.Second)}
	stat := &zk.Stat{Version: 2, Mtime: b.clock.at(now.Add(-10 * time.Second))}
	b.clock.observe(now.UnixMilli()+5000, now, now) // a new leader, whose clock is ahead
	b.adoptLocked(n, record{Kind: kindOwner, TTL: 30000}, stat)
	if left := n.end().Sub(now); left < 30*time.Second {
		t.Errorf("the creator ends a lease of 30 s, just renewed by another server, in %v; want 30 s or more", left)
	}
}
