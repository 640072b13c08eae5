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

func TestARequestWhoseSessionEndsIsNotMadeAnew(t *testing.T) {
	const ttl = 12345 * time.Millisecond
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	near := open(t, zookeeper.Options{Servers: srv.Addr})
	far := open(t, zookeeper.Options{Servers: link.Addr(), Sessions: 1, SessionTimeout: 2 * time.Second, Timeout: patience})
	take(t, far, "mark", "x", time.Minute)
	take(t, far, "guarded", "x", time.Minute)
	take(t, far, "acquired", "x", time.Minute)
	giveUp(t, far, "acquired", "x") // the mutex' node is there
	owner := func(mutex string) simba.Tenure {
		o, _, err := near.Owner(ctx, mutex)
		if err != nil {
			t.Error(err)
		}
		return o
	}
	type answer struct {
		out simba.Outcome
		err error
	}
	answered := make(map[string]chan answer)
	begun := link.DropRepliesFrom(`"ttl":12345`)
	for m, ask := range map[string]func() (simba.Outcome, error){
		"guarded": func() (simba.Outcome, error) { return far.Guard(ctx, guardOf("guarded", "x", ttl)) },
		"acquired": func() (simba.Outcome, error) {
			out, _, err := far.Acquire(ctx, simba.AcquireRequest{Mutex: "acquired", Contender: "x", TTL: ttl})
			return out, err
		},
	} {
		answered[m] = make(chan answer, 1)
		go func() {
			out, err := ask()
			answered[m] <- answer{out, err}
		}()
	}
	<-begun
	for m := range answered {
		await(t, m+": it is done", func() bool {
			o := owner(m)
			return o.Owner == "x" && o.TTLAt-o.AcquiredAt == ttl.Milliseconds()
		})
	}
	giveUp(t, near, "acquired", "x")
	await(t, "the session is over", func() bool {
		events, _, err := far.History(ctx, simba.HistoryRequest{Mutex: "mark", Count: 1})
		return err == nil && len(events) == 1 && events[0].Kind == simba.EventExpired && owner("guarded").Owner == ""
	})
	next := take(t, near, "guarded", "x", time.Minute)
	link.Heal()
	for m, c := range answered {
		a := <-c
		if a.out.Status != 0 {
			t.Errorf("%s: it is told %+v", m, a.out)
		}
		unavailable(t, a.err)
	}
	if o := owner("guarded"); o.Token != next.Token || o.TTLAt-o.AcquiredAt == ttl.Milliseconds() {
		t.Errorf("guarded: the next tenure is now %+v, after %+v", o, next)
	}
	if o := owner("acquired"); o.Owner != "" {
		t.Errorf("acquired: what was released is owned again: %+v", o)
	}
}
