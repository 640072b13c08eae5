package zookeeper

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// In these tests a contender continues through another server, because its first server is slow or
// cannot be reached.

// noOtherOwner checks that no other contender gets the mutex during d.
func noOtherOwner(t *testing.T, b *Backend, mutex string, d time.Duration) {
	t.Helper()
	end := time.After(d)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-end:
			return
		case <-tick.C:
			out, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: mutex, Contender: "y", TTL: longLease, NoQueue: true})
			if err == nil && out.Status == simba.StatusAcquired {
				t.Fatalf("y acquired a mutex that still has an owner: %+v", out)
			}
		}
	}
}

func TestUnansweredAcquireRepeatedElsewhereIsKept(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	far := open(t, Options{Servers: link.Addr(), Timeout: time.Second})
	near := open(t, Options{Servers: srv.Addr})
	take(t, near, "m", "w", longLease) // now the mutex's node exists
	giveUp(t, near, "m", "w")
	link.DropReplies()
	_, _, err := far.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "x", TTL: longLease})
	unavailable(t, err)
	x := acquire(t, near, "m", "x", longLease)
	if x.Owner != "x" {
		t.Fatalf("ACQUIRE of x at the other server: %+v; want x as the owner", x)
	}
	link.Heal()
	await(t, "the first server is back", func() bool {
		owner, _, err := far.Owner(ctx, "m")
		return err == nil && owner.Owner == "x"
	})
	noOtherOwner(t, near, "m", 3*time.Second)
}

func TestWaiterWithAnUnconfirmedEndMayAcquireElsewhere(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	near := open(t, Options{Servers: srv.Addr}) // first: it must see a heartbeat of far
	far := open(t, Options{Servers: link.Addr(), Timeout: time.Second})
	take(t, near, "m", "o", longLease)
	ticket, _ := block(t, far, "m", "x", longLease)
	link.Blackhole()
	_, err := ticket.End(simba.EndTimeout)
	unavailable(t, err)
	giveUp(t, near, "m", "o")
	if x := acquire(t, near, "m", "x", longLease); x.Owner != "x" {
		t.Fatalf("ACQUIRE of x at the other server: %+v; want x as the owner", x)
	}
	link.Heal()
	noOtherOwner(t, near, "m", 3*time.Second)
}

func TestLeaseEndsThoughItsServerIsCutOff(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	far := open(t, Options{Servers: link.Addr(), Timeout: time.Second})
	near := open(t, Options{Servers: srv.Addr})
	first := take(t, far, "m", "x", 500*time.Millisecond)
	link.Blackhole()
	await(t, "x's lease is over", func() bool {
		owner, _, err := near.Owner(ctx, "m")
		return err == nil && owner.Owner == ""
	})
	if out, err := near.Guard(ctx, guardOf("m", "x", longLease)); err != nil || out.Status != simba.StatusLost {
		t.Errorf("GUARD after the lease has ended: %+v, %v; want lost", out, err)
	}
	c := raw(t, srv.Addr)
	_, before, err := c.Get("/simba/m")
	must(t, err)
	if out := take(t, near, "m", "x", longLease); out.Token <= first.Token {
		t.Errorf("ACQUIRE of x: %+v; want a larger token than in %+v", out, first)
	}
	_, after, err := c.Get("/simba/m")
	if err != nil || after.Version-before.Version > 3 {
		t.Errorf("ACQUIRE took %d writes to the mutex's node, %v; want 3 or less", after.Version-before.Version, err)
	}
	link.Heal()
	noOtherOwner(t, near, "m", 2*time.Second)
}

func TestRenewalElsewhereMayShortenTheLease(t *testing.T) {
	srv := stores.ZooKeeper(t)
	one := open(t, Options{Servers: srv.Addr})
	two := open(t, Options{Servers: srv.Addr})
	take(t, one, "m", "x", time.Hour)
	_, woken := block(t, one, "m", "y", longLease)
	if out, err := two.Guard(ctx, guardOf("m", "x", 500*time.Millisecond)); err != nil || out.Status != simba.StatusRenewed {
		t.Fatalf("GUARD at the other server: %+v, %v; want renewed", out, err)
	}
	woken.await(t)
}

func TestWaiterThatMovedAndLeftDelaysNobody(t *testing.T) {
	srv := stores.ZooKeeper(t)
	const grace = 300 * time.Millisecond
	one := open(t, Options{Servers: srv.Addr, QueueGrace: grace})
	two := open(t, Options{Servers: srv.Addr, QueueGrace: grace})
	take(t, one, "m", "o", longLease)
	first, _ := block(t, one, "m", "x", time.Hour)
	if _, err := first.End(simba.EndGone); err != nil {
		t.Fatal(err)
	}
	second, _ := block(t, two, "m", "x", time.Hour)
	await(t, "the first server reports x as blocked", func() bool {
		q, _, err := one.Queue(ctx, "m", 10)
		return err == nil && len(q) == 1 && q[0].Blocked
	})
	if _, err := second.End(simba.EndGone); err != nil {
		t.Fatal(err)
	}
	_, woken := block(t, one, "m", "z", longLease)
	giveUp(t, one, "m", "o")
	woken.await(t)
}

func TestWaiterElsewhereGetsOnlyALeaseThatTheCreatorKeeps(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	const ttl = 1200 * time.Millisecond
	near := open(t, Options{Servers: srv.Addr, QueueGrace: 5 * time.Second})
	far := open(t, Options{Servers: link.Addr(), QueueGrace: 5 * time.Second})
	take(t, near, "m", "o", longLease)
	first, _ := block(t, near, "m", "x", ttl)
	if _, err := first.End(simba.EndGone); err != nil {
		t.Fatal(err)
	}
	second, woken := block(t, far, "m", "x", ttl)
	_, after := block(t, near, "m", "z", longLease)
	await(t, "the creator reports x as blocked", func() bool {
		q, _, err := near.Queue(ctx, "m", 10)
		return err == nil && len(q) == 2 && q[0].Blocked
	})
	link.Delay(200 * time.Millisecond)
	giveUp(t, near, "m", "o")
	woken.await(t)
	out, err := second.End(simba.EndWoken)
	answered := time.Now()
	if err != nil || out.Status != simba.StatusAcquired {
		t.Fatalf("the end of x's wait: %+v, %v; want acquired", out, err)
	}
	after.await(t)
	if left := out.TTL - time.Since(answered); left > 3*time.Millisecond {
		t.Errorf("z owns the mutex, but x's reply gives x another %v", left)
	}
}

func TestWaiterThatLeavesDuringARejoinDelaysNobody(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	far := open(t, Options{Servers: link.Addr(), SessionTimeout: 2 * time.Second, Timeout: 2 * time.Second})
	near := open(t, Options{Servers: srv.Addr})
	c := raw(t, srv.Addr)
	take(t, near, "m", "a", longLease)
	ticket, _ := block(t, far, "m", "x", time.Hour)
	nodes := func() int { names, _, _ := c.Children("/simba/m"); return len(names) }
	link.Blackhole()
	await(t, "x's node is gone", func() bool { return nodes() == 1 })
	giveUp(t, near, "m", "a")
	await(t, "the mutex is free", func() bool { return nodes() == 0 })
	link.Heal()
	link.Delay(100 * time.Millisecond)
	await(t, "x has a new node", func() bool { return nodes() == 1 })
	if _, err := ticket.End(simba.EndGone); err != nil {
		t.Fatal(err)
	}
	link.Heal()
	await(t, "z acquires the mutex", func() bool {
		out, _, err := near.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "z", TTL: longLease, NoQueue: true})
		return err == nil && out.Status == simba.StatusAcquired
	})
}

func TestLateWriteForAClosedConnectionDoesNotEndTheNextWait(t *testing.T) {
	srv := stores.ZooKeeper(t)
	one := open(t, Options{Servers: srv.Addr, QueueGrace: time.Minute})
	two := open(t, Options{Servers: srv.Addr, QueueGrace: time.Minute})
	c := raw(t, srv.Addr)
	take(t, one, "m", "a", longLease)
	first, _ := block(t, one, "m", "b", longLease)
	block(t, one, "m", "c", longLease)
	names, _, err := c.Children("/simba/m")
	if err != nil || len(names) != 3 {
		t.Fatalf("the nodes of the mutex: %v, %v; want 3", names, err)
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
	lease := "/simba-leases/" + names[1][len("_c_"):strings.LastIndex(names[1], "-latch-")]
	if _, err := first.End(simba.EndGone); err != nil {
		t.Fatal(err)
	}
	says := func(what string) {
		t.Helper()
		await(t, "b's lease node has "+what, func() bool {
			data, _, err := c.Get(lease)
			return err == nil && strings.Contains(string(data), what)
		})
	}
	says(`"kind":"polling"`)
	late, _, err := c.Get(lease)
	must(t, err)
	_, woken := block(t, two, "m", "b", longLease)
	says(`"kind":"blocked"`)
	if _, err := c.Set(lease, late, -1); err != nil {
		t.Fatal(err)
	}
	// The second server notices the late write when its own next write fails.
	if _, _, err := two.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "b", TTL: longLease}); err != nil {
		t.Fatal(err)
	}
	says(`"kind":"blocked"`) // until then the first server treats b as a polling waiter
	giveUp(t, one, "m", "a")
	woken.await(t)
}

func TestTenureGrantedElsewhereIsKnownHere(t *testing.T) {
	srv := stores.ZooKeeper(t)
	here := open(t, Options{Servers: srv.Addr})
	there := open(t, Options{Servers: srv.Addr})
	for name, use := range map[string]func(mutex string, token uint64) bool{
		"guarded": func(mutex string, token uint64) bool {
			r := guardOf(mutex, "x", longLease)
			r.Token = token
			out, err := here.Guard(ctx, r)
			return err == nil && out.Status == simba.StatusRenewed && out.Token == token
		},
		"released": func(mutex string, token uint64) bool {
			ok, _, err := here.Release(ctx, simba.ReleaseRequest{Mutex: mutex, Contender: "x", Token: token})
			return err == nil && ok
		},
		"released without a token": func(mutex string, _ uint64) bool {
			ok, _, err := here.Release(ctx, simba.ReleaseRequest{Mutex: mutex, Contender: "x"})
			return err == nil && ok
		},
	} {
		t.Run(name, func(t *testing.T) {
			// The server here does not notice the end of this tenure.
			take(t, here, name, "x", longLease)
			giveUp(t, there, name, "x")
			now := take(t, there, name, "x", longLease)
			if !use(name, now.Token) {
				t.Error("the server here refused a request of the owner x")
			}
		})
	}
}

func TestUnknownOutcomeDoesNotEndTheNextTenure(t *testing.T) {
	const deletes = "\x00\x00\x00\x02\x00\xff\xff\xff\xff" // the header of a delete in a multi
	srv := stores.ZooKeeper(t)
	near := open(t, Options{Servers: srv.Addr})
	c := raw(t, srv.Addr)
	release := func(far *Backend, mutex string) (bool, error) {
		ok, _, err := far.Release(ctx, simba.ReleaseRequest{Mutex: mutex, Contender: "x"})
		return ok, err
	}
	for m, is := range map[string]struct {
		owner, waiter string // near created the node of the owner o, far those of x
		ended         func(far *Backend, mutex string) (bool, error)
	}{
		"released": {owner: "x", ended: release},
		"left":     {owner: "o", waiter: "x", ended: release},
		"broken": {owner: "o", ended: func(far *Backend, mutex string) (bool, error) {
			ok, _, err := far.Break(ctx, mutex, "stuck")
			return ok, err
		}},
	} {
		t.Run(m, func(t *testing.T) {
			t.Parallel()
			link := stores.NewLink(t, srv.Addr)
			far := open(t, Options{Servers: link.Addr(), Sessions: 1, SessionTimeout: 2 * time.Second, Timeout: patience})
			take(t, far, "mark-"+m, m, longLease)
			if is.owner == "x" {
				take(t, far, m, "x", longLease)
			} else {
				take(t, near, m, is.owner, longLease)
				// GUARD writes the lease node, so that no later write of it is due.
				if _, err := near.Guard(ctx, guardOf(m, is.owner, longLease)); err != nil {
					t.Fatal(err)
				}
			}
			if is.waiter != "" {
				acquire(t, far, m, is.waiter, longLease)
			}
			nodes := func() int { names, _, _ := c.Children("/simba/" + m); return len(names) }
			before := nodes()
			begun := link.DropRepliesFrom(deletes)
			type answer struct {
				ok  bool
				err error
			}
			answered := make(chan answer, 1)
			go func() {
				ok, err := is.ended(far, m)
				answered <- answer{ok, err}
			}()
			<-begun
			await(t, "the node is deleted", func() bool { return nodes() == before-1 })
			if is.waiter != "" {
				giveUp(t, near, m, is.owner)
			}
			next := take(t, near, m, "x", longLease)
			await(t, "the session is over", func() bool {
				events, _, err := far.History(ctx, simba.HistoryRequest{Mutex: "mark-" + m, Count: 1})
				return err == nil && len(events) == 1 && events[0].Kind == simba.EventExpired
			})
			link.Heal()
			a := <-answered
			if a.ok {
				t.Error("the request whose session ended returned true, want an error")
			}
			unavailable(t, a.err)
			for name, b := range map[string]*Backend{"far": far, "near": near} {
				if owner, _, err := b.Owner(ctx, m); err != nil || owner.Owner != "x" || owner.Token != next.Token {
					t.Errorf("OWNER at the %s server: %+v, %v; want x with token %d", name, owner, err, next.Token)
				}
				if ok, _, err := b.Check(ctx, m, next.Token); err != nil || !ok {
					t.Errorf("CHECK of the next tenure at the %s server: %v, %v; want true", name, ok, err)
				}
			}
		})
	}
}

func TestLateRenewalDoesNotReviveAReportedEnd(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	far := open(t, Options{Servers: link.Addr(), Timeout: 8 * time.Second})
	near := open(t, Options{Servers: srv.Addr})
	for m, again := range map[string]func(mutex string) (simba.Outcome, error){
		"guarded":  func(mutex string) (simba.Outcome, error) { return far.Guard(ctx, guardOf(mutex, "a", longLease)) },
		"acquired": func(mutex string) (simba.Outcome, error) { return acquire(t, far, mutex, "a", longLease), nil },
	} {
		a := take(t, far, m, "a", time.Second)
		// GUARD writes the lease node, so that no later write of it is due.
		if _, err := far.Guard(ctx, guardOf(m, "a", time.Second)); err != nil {
			t.Fatal(err)
		}
		link.Blackhole()
		answered := make(chan simba.Outcome, 1)
		go func() {
			out, err := again(m)
			if err != nil {
				t.Errorf("the late request for %s: %v", m, err)
			}
			answered <- out
		}()
		await(t, "the end of a's lease is reported", func() bool {
			owner, _, err := near.Owner(ctx, m)
			return err == nil && owner.Owner == ""
		})
		link.Heal()
		switch out := <-answered; {
		case out.Token == a.Token, m == "guarded" && out.Status != simba.StatusLost, m == "acquired" && out.Status != simba.StatusAcquired:
			t.Errorf("the late request for %s: %+v; want no renewal of the tenure %+v", m, out, a)
		}
	}
}

func TestUnansweredRenewalIsCounted(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	far := open(t, Options{Servers: link.Addr(), Timeout: time.Second})
	near := open(t, Options{Servers: srv.Addr})
	a := take(t, far, "m", "a", 1500*time.Millisecond)
	link.DropReplies()
	_, err := far.Guard(ctx, guardOf("m", "a", longLease))
	unavailable(t, err)
	link.Heal()
	noOtherOwner(t, near, "m", 2*time.Second)
	if out, err := far.Guard(ctx, guardOf("m", "a", longLease)); err != nil || out.Status != simba.StatusRenewed || out.Token != a.Token {
		t.Errorf("GUARD: %+v, %v; want renewed with the token of %+v", out, err, a)
	}
}

func TestAtMostOneRequestReportsThatItEndedATenure(t *testing.T) {
	const deletes = "\x00\x00\x00\x02\x00\xff\xff\xff\xff" // the header of a delete in a multi
	srv := stores.ZooKeeper(t)
	near := open(t, Options{Servers: srv.Addr})
	release := func(b *Backend, mutex string) (bool, error) {
		ok, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: mutex, Contender: "x"})
		return ok, err
	}
	for m, ends := range map[string]func(b *Backend, mutex string) (bool, error){
		"released": release,
		"broken": func(b *Backend, mutex string) (bool, error) {
			ok, _, err := b.Break(ctx, mutex, "stuck")
			return ok, err
		},
	} {
		t.Run(m, func(t *testing.T) {
			link := stores.NewLink(t, srv.Addr)
			far := open(t, Options{Servers: link.Addr(), Sessions: 1, Timeout: patience})
			take(t, near, m, "x", longLease)
			// GUARD writes the lease node, so that no later write of it is due.
			if _, err := near.Guard(ctx, guardOf(m, "x", longLease)); err != nil {
				t.Fatal(err)
			}
			lost := link.DropReplyTo(deletes)
			ok, err := ends(far, m)
			<-lost
			if err == nil {
				t.Errorf("the request without an answer returned %v; want an error, since another one may have ended the tenure", ok)
			} else {
				unavailable(t, err)
			}
			if ok, err := release(near, m); ok || err != nil {
				t.Errorf("a second RELEASE: %v, %v; want false", ok, err)
			}
		})
	}
}
