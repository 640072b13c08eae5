package zookeeper_test

import (
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/backends/zookeeper"
)

// What holds after a request had no answer, while its contender goes on through another server.

func TestAWaiterWhoseEndHadNoAnswerIsNotPassedOverByAHandoff(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	far := open(t, zookeeper.Options{
		Servers: link.Addr(), Timeout: 2 * time.Second, SessionTimeout: 20 * time.Second, QueueGrace: time.Minute, HandoffWindow: time.Minute,
	})
	ears := newBoard()
	ears.channels["simba:{m}:a"] = true // so that its place is kept when it is the first
	near := open(t, zookeeper.Options{Servers: srv.Addr, QueueGrace: time.Minute, HandoffWindow: time.Minute, Notices: ears})
	if _, err := near.Subscribed(ctx, "simba:{m}:a", false); err != nil {
		t.Fatal(err)
	}
	take(t, far, "m", "o", time.Minute)
	first, _ := block(t, far, "m", "a", time.Minute)
	second, woken := block(t, far, "m", "b", time.Minute)
	link.Blackhole()
	_, err := first.End(simba.EndTimeout)
	unavailable(t, err)
	acquire(t, near, "m", "a", time.Minute)
	await(t, "a asks elsewhere", func() bool {
		q, _, err := near.Queue(ctx, "m", 10)
		return err == nil && len(q) == 2 && q[0].Contender == "a" && !q[0].Blocked && q[1].Contender == "b"
	})
	released := make(chan bool, 1)
	go func() {
		ok, _, err := far.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "o"})
		released <- ok && err == nil
	}()
	link.Heal()
	if !<-released {
		t.Fatal("o does not release it")
	}
	a := take(t, near, "m", "a", time.Minute)
	select {
	case <-woken:
		t.Error("two owners: b is told too")
	default:
	}
	if out, err := second.End(simba.EndTimeout); err != nil || out.Status != simba.StatusTimeout || out.Token != a.Token {
		t.Errorf("b: %+v, %v", out, err)
	}
}
