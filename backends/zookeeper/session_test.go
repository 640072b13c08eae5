package zookeeper

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

var ctx = context.Background()

func guardOf(mutex, contender string, ttl time.Duration) simba.GuardRequest {
	return simba.GuardRequest{Mutex: mutex, Contender: contender, TTL: ttl}
}

func TestOwnerLosesItsLeaseBeforeAnotherGetsTheMutex(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	far := open(t, Options{Servers: link.Addr(), SessionTimeout: 2 * time.Second, Timeout: time.Second})
	near := open(t, Options{Servers: srv.Addr})
	take(t, far, "m", "a", time.Minute)
	_, woken := block(t, near, "m", "b", time.Minute)
	link.Blackhole()
	lost := func() bool {
		events, _, err := far.History(ctx, simba.HistoryRequest{Mutex: "m"})
		return err == nil && slices.ContainsFunc(events, func(e simba.Event) bool {
			return e.Kind == simba.EventExpired && e.Owner == "a" && e.Reason == "zookeeper session lost"
		})
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for given := false; ; {
		given = given || lost()
		select {
		case <-woken:
			// b's server has its own network, so it may reply before a's server notices the loss.
			if !given && !lost() {
				t.Error("b owns the mutex, but a's server has not given a's lease up")
			}
			_, err := far.Guard(ctx, guardOf("m", "a", time.Minute))
			unavailable(t, err)
			link.Heal()
			await(t, "a's server is back", func() bool {
				out, err := far.Guard(ctx, guardOf("m", "a", time.Minute))
				return err == nil && out.Status == simba.StatusLost && out.Owner == "b"
			})
			return
		case <-tick.C:
		case <-time.After(patience):
			t.Fatal("b never got the mutex")
		}
	}
}

func TestWaitersSurviveALostSession(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	far := open(t, Options{Servers: link.Addr(), SessionTimeout: time.Second, Timeout: time.Second})
	near := open(t, Options{Servers: srv.Addr})
	take(t, near, "m", "a", time.Minute)
	ticket, woken := block(t, far, "m", "b", time.Minute)
	link.Blackhole()
	await(t, "b's node is gone with its session", func() bool {
		q, _, err := near.Queue(ctx, "m", 10)
		return err == nil && len(q) == 0
	})
	link.Heal()
	await(t, "b has a new node", func() bool {
		q, _, err := near.Queue(ctx, "m", 10)
		return err == nil && len(q) == 1 && q[0].Contender == "b" && q[0].Blocked
	})
	giveUp(t, near, "m", "a")
	woken.await(t)
	if out, err := ticket.End(simba.EndWoken); err != nil || out.Status != simba.StatusAcquired {
		t.Errorf("the end of b's wait: %+v, %v; want acquired", out, err)
	}
}

func TestPollingWaitersGetANoticeAfterALostSession(t *testing.T) {
	srv := stores.ZooKeeper(t)
	mutex, own := simba.MutexChannel("m"), simba.ContenderChannel("m", "b")
	heard := conformance.NewBroker(mutex, own)
	b := open(t, Options{Servers: srv.Addr, Notices: heard, SessionTimeout: 4 * time.Second, Timeout: 4 * time.Second})
	for _, channel := range []string{mutex, own} {
		if _, err := b.Subscribed(ctx, channel, false); err != nil {
			t.Fatal(err)
		}
	}
	take(t, b, "m", "a", time.Hour)
	if out := acquire(t, b, "m", "b", time.Hour); out.Status != simba.StatusQueued {
		t.Fatalf("ACQUIRE of b: %+v; want queued", out)
	}
	srv.Pause()
	await(t, "the lease is given up", func() bool {
		events, _, err := b.History(ctx, simba.HistoryRequest{Mutex: "m", Count: 1})
		return err == nil && len(events) == 1 && events[0].Kind == simba.EventExpired
	})
	srv.Resume()
	for _, channel := range []string{mutex, own} {
		await(t, "a notice is published on "+channel, func() bool { return heard.Count(channel, simba.ReleasedNotice("a")) == 1 })
	}
	take(t, b, "m", "b", time.Hour)
}

func TestLostReplyLeavesNoNode(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	b := open(t, Options{Servers: link.Addr()})
	c := raw(t, srv.Addr)
	take(t, b, "lost", "x", time.Minute) // now the mutex's node exists
	giveUp(t, b, "lost", "x")
	link.DropReplies()
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _, err := b.Acquire(soon, simba.AcquireRequest{Mutex: "lost", Contender: "a", TTL: time.Minute})
	unavailable(t, err)
	link.Heal()
	await(t, "the orphan is deleted", func() bool {
		names, _, err := c.Children("/simba/lost")
		return err != nil || len(names) == 0
	})
	if l := leases(t, c); len(l) != 0 {
		t.Errorf("lease nodes are left: %v", l)
	}
}

func TestTokensGrowWhenTheMutexNodeIsRecreated(t *testing.T) {
	srv := stores.ZooKeeper(t)
	b := open(t, Options{Servers: srv.Addr})
	c := raw(t, srv.Addr)
	last := uint64(0)
	for range 3 {
		out := take(t, b, "m", "a", time.Minute)
		if out.Token <= last {
			t.Errorf("ACQUIRE returned token %d after %d; want a larger one", out.Token, last)
		}
		names, _, err := c.Children("/simba/m")
		if err != nil || len(names) != 1 || !strings.HasSuffix(names[0], "latch-0000000000") {
			t.Errorf("the nodes of the mutex: %v, %v; want one, with number 0", names, err)
		}
		last = out.Token
		giveUp(t, b, "m", "a")
		await(t, "the mutex's node is deleted", func() bool {
			there, _, err := c.Exists("/simba/m")
			return err == nil && !there
		})
	}
}

func TestDeletingANodeByHandEndsTheLease(t *testing.T) {
	srv := stores.ZooKeeper(t)
	b := open(t, Options{Servers: srv.Addr})
	c := raw(t, srv.Addr)
	take(t, b, "m", "a", time.Minute)
	_, woken := block(t, b, "m", "b", time.Minute)
	names, _, err := c.Children("/simba/m")
	must(t, err)
	first := slices.MinFunc(names, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
	must(t, c.Delete("/simba/m/"+first, -1))
	woken.await(t)
	out, err := b.Guard(ctx, guardOf("m", "a", time.Minute))
	if err != nil || out.Status != simba.StatusLost || out.Owner != "b" {
		t.Errorf("GUARD of a: %+v, %v; want lost with b as the owner", out, err)
	}
	await(t, "a's lease node is deleted too", func() bool {
		return len(leases(t, c)) == 1
	})
}

func TestServerWaitsForTheEndOfALostSession(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	far := open(t, Options{Servers: link.Addr(), SessionTimeout: 8 * time.Second, Timeout: time.Second})
	near := open(t, Options{Servers: srv.Addr})
	a := take(t, far, "m", "a", time.Minute)
	link.Blackhole()
	await(t, "the session is given up", func() bool {
		events, _, err := far.History(ctx, simba.HistoryRequest{Mutex: "m", Count: 1})
		return err == nil && len(events) == 1 && events[0].Kind == simba.EventExpired
	})
	// The ensemble has not ended the session yet.
	if owner, _, err := near.Owner(ctx, "m"); err != nil || owner.Owner != "a" || owner.Token != a.Token {
		t.Fatalf("OWNER at the other server: %+v, %v; want a with the same token", owner, err)
	}
	link.Heal()
	healed := time.Now()
	await(t, "the server is back", func() bool {
		out, err := far.Guard(ctx, guardOf("m", "a", time.Minute))
		if err != nil {
			unavailable(t, err)
			return false
		}
		if out.Status != simba.StatusLost || out.Owner != "" {
			t.Errorf("GUARD of a after its session was lost: %+v; want lost without an owner", out)
		}
		return true
	})
	t.Logf("the server served again %v after the network was healed", time.Since(healed))
	if out, err := near.Guard(ctx, guardOf("m", "a", time.Minute)); err != nil || out.Status != simba.StatusLost {
		t.Errorf("GUARD of a at the other server, after a reply of status lost: %+v, %v; want lost", out, err)
	}
	await(t, "the session's lease nodes are deleted", func() bool {
		return len(leases(t, raw(t, srv.Addr))) == 0
	})
	take(t, far, "m", "b", time.Minute)
}
