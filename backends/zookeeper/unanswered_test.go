package zookeeper

import (
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// In these tests a request had no answer, and its contender continues through another server.

func TestHandoffDoesNotSkipAWaiterWithAnUnansweredEnd(t *testing.T) {
	const session = 20 * time.Second
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	far := open(t, Options{
		Servers: link.Addr(), Timeout: 2 * time.Second, SessionTimeout: session, QueueGrace: time.Minute, HandoffWindow: time.Minute,
	})
	subs := conformance.NewBroker("simba:{m}:a") // so that a gets a reservation when its node is the first
	near := open(t, Options{Servers: srv.Addr, QueueGrace: time.Minute, HandoffWindow: time.Minute, Notices: subs})
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
	await(t, "a is queued as a polling waiter", func() bool {
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
		t.Fatal("RELEASE of o returned false, want true")
	}
	var a simba.Outcome
	await(t, "a acquires the mutex", func() bool { // when far has confirmed its session
		var err error
		a, _, err = near.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "a", TTL: session / 2})
		return err == nil && a.Status == simba.StatusAcquired
	})
	select {
	case <-woken:
		t.Error("two owners: b was granted the mutex too")
	default:
	}
	if out, err := second.End(simba.EndTimeout); err != nil || out.Status != simba.StatusTimeout || out.Token != a.Token {
		t.Errorf("the end of b's wait: %+v, %v; want timeout with a's token", out, err)
	}
}

func TestRequestIsNotRepeatedAfterItsSession(t *testing.T) {
	const ttl = 12345 * time.Millisecond
	type answer struct {
		out simba.Outcome
		err error
	}
	srv := stores.ZooKeeper(t)
	near := open(t, Options{Servers: srv.Addr})
	owner := func(mutex string) simba.Tenure {
		o, _, err := near.Owner(ctx, mutex)
		if err != nil {
			t.Error(err)
		}
		return o
	}
	// lost makes a request that the ensemble executes. The session ends before the answer arrives.
	// The request has a link of its own, so that no other replies are lost.
	lost := func(t *testing.T, m string, before func(far *Backend), ask func(far *Backend) (simba.Outcome, error), release, done func()) {
		link := stores.NewLink(t, srv.Addr)
		far := open(t, Options{Servers: link.Addr(), Sessions: 1, SessionTimeout: 6 * time.Second, Timeout: patience})
		mark := "mark-" + m
		take(t, far, mark, "x", time.Minute)
		take(t, far, m, "x", time.Minute)
		before(far)
		begun := link.DropRepliesFrom(`"ttl":12345`)
		answered := make(chan answer, 1)
		go func() {
			out, err := ask(far)
			answered <- answer{out, err}
		}()
		<-begun
		await(t, "the request is executed", func() bool {
			o := owner(m)
			return o.Owner == "x" && o.TTLAt-o.AcquiredAt == ttl.Milliseconds()
		})
		release()
		await(t, "the session is over", func() bool {
			events, _, err := far.History(ctx, simba.HistoryRequest{Mutex: mark, Count: 1})
			return err == nil && len(events) == 1 && events[0].Kind == simba.EventExpired && owner(m).Owner == ""
		})
		done()
		link.Heal()
		a := <-answered
		if a.out.Status != 0 {
			t.Errorf("the request returned %+v after its session ended; want an error and no outcome", a.out)
		}
		unavailable(t, a.err)
	}
	t.Run("guarded", func(t *testing.T) {
		var next simba.Outcome
		lost(t, "guarded", func(*Backend) {}, func(far *Backend) (simba.Outcome, error) {
			return far.Guard(ctx, guardOf("guarded", "x", ttl))
		}, func() {}, func() { next = take(t, near, "guarded", "x", time.Minute) })
		if o := owner("guarded"); o.Token != next.Token || o.TTLAt-o.AcquiredAt == ttl.Milliseconds() {
			t.Errorf("OWNER after the late GUARD: %+v; want the tenure %+v unchanged", o, next)
		}
	})
	t.Run("acquired", func(t *testing.T) {
		lost(t, "acquired", func(far *Backend) {
			giveUp(t, far, "acquired", "x") // now the mutex's node exists
		}, func(far *Backend) (simba.Outcome, error) {
			out, _, err := far.Acquire(ctx, simba.AcquireRequest{Mutex: "acquired", Contender: "x", TTL: ttl})
			return out, err
		}, func() { giveUp(t, near, "acquired", "x") }, func() {})
		if o := owner("acquired"); o.Owner != "" {
			t.Errorf("OWNER after the late ACQUIRE: %+v; want no owner", o)
		}
	})
}
