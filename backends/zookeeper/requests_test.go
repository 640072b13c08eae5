package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// In these tests a server asks another one, which created the node of the contender.

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

func inbox(b *Backend) string { s := b.store.slotOf("m").session; return s.inbox(s.tag) }

// awaitAnswer waits until a server has answered its first request. The node's version counts how often
// a request was created or deleted.
func awaitAnswer(t *testing.T, srv *stores.Server, b *Backend) {
	t.Helper()
	c := raw(t, srv.Addr)
	await(t, "the first request is answered", func() bool {
		_, stat, err := c.Exists(inbox(b))
		return err == nil && stat.Cversion >= 2 && stat.NumChildren == 0
	})
}

func TestWithdrawnRequestIsNeverExecuted(t *testing.T) {
	srv, link, far, near := apart(t, Options{Options: proxy.Options{Timeout: time.Second}}, Options{Options: proxy.Options{Timeout: time.Second}})
	c := raw(t, srv.Addr)
	a := take(t, far, "m", "a", longLease)
	link.Blackhole()
	for name, ask := range map[string]func() error{
		"GUARD": func() error { _, err := near.Guard(ctx, guardOf("m", "a", time.Millisecond)); return err },
		"RELEASE": func() error {
			_, _, err := near.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "a"})
			return err
		},
		"BREAK": func() error { _, _, err := near.Break(ctx, "m", "stuck"); return err },
		"ACQUIRE": func() error {
			_, _, err := near.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "a", TTL: time.Millisecond})
			return err
		},
	} {
		if err := ask(); err == nil {
			t.Errorf("%s succeeded although the owner's server is cut off", name)
		} else {
			unavailable(t, err)
		}
	}
	awaitEmptyInbox(t, c, far)
	link.Heal()
	noOtherOwner(t, near, "m", time.Second)
	if o, _, err := near.Owner(ctx, "m"); err != nil || o.Token != a.Token || o.TTLAt-o.AcquiredAt != longLease.Milliseconds() {
		t.Errorf("OWNER after withdrawn requests: %+v, %v; want a with its lease", o, err)
	}
	giveUp(t, near, "m", "a") // the server is back
}

func TestAnswerThatComesBeforeTheWithdrawalIsTheReply(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link, farLink := stores.NewLink(t, srv.Addr), stores.NewLink(t, srv.Addr)
	far, near := open(t, Options{Servers: farLink.Addr()}), open(t, Options{Servers: link.Addr()})
	a := take(t, far, "m", "a", longLease)
	s, err := near.store.slotOf("m").current(ctx, near.store)
	must(t, err)
	names, err := s.children(ctx, "m")
	must(t, err)
	q := asking(opGuard, proxy.Lease{Owner: "a", TTL: 4321 * time.Millisecond})
	q.GUID, q.Mutex = guidOf(names[0]), "m"

	acted := farLink.BlackholeFrom(`"ttl":4321`)
	withdrawn := link.BlackholeFrom("\x00\x00\x00\x0e\x00\x00\x00\x02\x00\xff\xff\xff\xff") // a multi that begins with a deletion
	answers := make(chan answer, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		a, err := near.store.tryAsk(ctx, s, q)
		if err != nil {
			t.Errorf("GUARD: %v; want the answer", err)
		}
		answers <- a
	}()
	<-acted
	<-withdrawn
	farLink.Heal()
	await(t, "the lease is renewed", func() bool {
		o, _, err := far.Owner(ctx, "m")
		return err == nil && o.TTLAt-o.AcquiredAt == 4321
	})
	link.Heal()
	if got := <-answers; got.Token != a.Token {
		t.Errorf("GUARD: %+v; want the token %d", got, a.Token)
	}
}

func TestRequestsToAServerAreBounded(t *testing.T) {
	srv, link, far, near := apart(t, Options{SessionTimeout: time.Minute, Options: proxy.Options{Timeout: time.Second}}, Options{Options: proxy.Options{Timeout: patience}})
	c := raw(t, srv.Addr)
	take(t, far, "m", "a", longLease)
	link.Blackhole()
	if _, err := c.CreateContainer(inbox(far), nil, zk.FlagContainer, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		t.Fatal(err)
	}
	for i := range maxRequests {
		create(t, c, fmt.Sprintf("%s/r%d", inbox(far), i), "", zk.FlagEphemeral)
	}
	asked := time.Now()
	_, err := near.Guard(ctx, guardOf("m", "a", longLease))
	if unavailable(t, err); !errors.Is(err, errSilent) || time.Since(asked) > patience/2 {
		t.Errorf("GUARD beside %d open requests: %v after %v; want a refusal at once", maxRequests, err, time.Since(asked))
	}
}

func TestStoppedServersTenuresEndByRequests(t *testing.T) {
	srv := stores.ZooKeeper(t)
	one := open(t, Options{Servers: srv.Addr, SessionTimeout: 8 * time.Second})
	two := open(t, Options{Servers: srv.Addr})
	for _, m := range []string{"released", "broken", "kept"} {
		take(t, one, m, "a", time.Minute)
		block(t, one, m, "w", time.Minute)
	}
	must(t, one.Close())
	if q, _, err := two.Queue(ctx, "kept", 10); err != nil || len(q) != 0 {
		t.Errorf("QUEUE after the waiter's server has stopped: %+v, %v; want nobody", q, err)
	}
	_, err := two.Guard(ctx, guardOf("kept", "a", longLease))
	unavailable(t, err)
	giveUp(t, two, "released", "a")
	take(t, two, "released", "b", longLease)
	if ok, _, err := two.Break(ctx, "broken", "stuck"); !ok || err != nil {
		t.Errorf("BREAK of a stopped server's tenure: %v, %v; want true", ok, err)
	}
	take(t, two, "broken", "b", longLease)
	noOtherOwner(t, two, "kept", time.Second)
	await(t, "the session of the stopped server is over", func() bool {
		out, err := two.Guard(ctx, guardOf("kept", "a", longLease))
		return err == nil && out.Status == simba.StatusLost
	})
	take(t, two, "kept", "b", longLease)
}

// The session of the creator ends between the other server's read of the marker and its request.
// ZooKeeper never deletes a container that had no child.
func TestRequestAfterTheEndOfASessionLeavesNoInbox(t *testing.T) {
	srv, link, asker, creator := apart(t, patient(), Options{SessionTimeout: 2 * time.Second})
	c := raw(t, srv.Addr)
	take(t, creator, "m", "a", time.Second)
	old := creator.store.slotOf("m").session
	held := link.BlackholeFrom(`"op":"guard"`)
	lost := make(chan simba.Outcome, 1)
	go func() {
		out, err := asker.Guard(ctx, guardOf("m", "a", time.Second))
		if err != nil {
			t.Errorf("GUARD: %v", err)
		}
		lost <- out
	}()
	<-held
	old.abandon()
	await(t, "the session is over", func() bool {
		there, _, err := c.Exists(old.marker(old.tag))
		return err == nil && !there
	})
	link.Heal()
	if out := <-lost; out.Status != simba.StatusLost {
		t.Errorf("GUARD: %+v; want lost", out)
	}
	if there, stat, err := c.Exists(old.inbox(old.tag)); err != nil || there {
		t.Errorf("the inbox of a session that is over: %v, %+v, %v", there, stat, err)
	}
}

func TestSessionEndsTheTenureOfAStoppedServer(t *testing.T) {
	srv := stores.ZooKeeper(t)
	one, two := open(t, Options{Servers: srv.Addr}), open(t, Options{Servers: srv.Addr})
	for _, m := range []string{"bound", "unbound"} {
		take(t, one, m, "x", longLease)
		_, _, err := two.Acquire(ctx, simba.AcquireRequest{Mutex: m, Contender: "x", TTL: longLease, Session: 1})
		must(t, err)
		renew(t, one, m, "x", longLease)
	}
	acquire(t, one, "unbound", "x", longLease)
	must(t, one.Close())
	for m, want := range map[string]bool{"bound": true, "unbound": false} {
		if ok, _, err := two.Release(ctx, simba.ReleaseRequest{Mutex: m, Contender: "x", Session: 1}); err != nil || ok != want {
			t.Errorf("%s: the end of the session: %v, %v; want %v", m, ok, err, want)
		}
	}
	noOtherOwner(t, two, "unbound", time.Second)
}

func TestCrashedServersTenuresEndWithItsSession(t *testing.T) {
	_, link, dead, near := apart(t, Options{SessionTimeout: 4 * time.Second, Options: proxy.Options{Timeout: time.Second}}, Options{Options: proxy.Options{Timeout: time.Second}})
	a := take(t, dead, "m", "a", longLease)
	link.Refuse()
	_, err := near.Guard(ctx, guardOf("m", "a", longLease))
	unavailable(t, err)
	var u *simba.UnavailableError
	if errors.As(err, &u) && !u.Busy {
		t.Errorf("GUARD of a dead server's lease: %v, which counts as an outage of the ensemble", err)
	}
	_, _, err = near.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "a"})
	unavailable(t, err)
	if o, _, err := near.Owner(ctx, "m"); err != nil || o.Token != a.Token {
		t.Errorf("OWNER while the session lasts: %+v, %v; want a", o, err)
	}
	await(t, "the session is over", func() bool {
		out, err := near.Guard(ctx, guardOf("m", "a", longLease))
		return err == nil && out.Status == simba.StatusLost
	})
	take(t, near, "m", "b", longLease)
}

// A server must not report an end that a renewal follows, whatever the clocks show.
func TestOwnerIsReportedUntilItsServerEndsTheLease(t *testing.T) {
	_, link, far, near := apart(t, Options{SessionTimeout: 8 * time.Second, Options: proxy.Options{Timeout: time.Second}}, Options{})
	near.store.clock.Learn(time.Now().Add(time.Hour).UnixMilli(), time.Now(), time.Now()) // a clock that is wrong
	a := take(t, far, "m", "a", 4*time.Second)
	if o, _, err := near.Owner(ctx, "m"); err != nil || o.Token != a.Token {
		t.Errorf("OWNER by a clock that is ahead: %+v, %v; want a", o, err)
	}
	take(t, far, "n", "a", 500*time.Millisecond)
	link.Blackhole()
	time.Sleep(time.Second)
	if o, _, err := near.Owner(ctx, "n"); err != nil || o.Owner != "a" || o.Transition != 0 {
		t.Errorf("OWNER after the lease, but before its server has ended it: %+v, %v; want a with nothing left", o, err)
	}
	link.Heal()
	await(t, "the lease is ended", func() bool {
		o, _, err := near.Owner(ctx, "n")
		return err == nil && o.Owner == ""
	})
}

// Curator's LeaderLatch watches the node ahead once, by its data. Simba's token is the node's czxid.
func TestLatchNodesNeverChange(t *testing.T) {
	srv := stores.ZooKeeper(t)
	one, two := open(t, Options{Servers: srv.Addr}), open(t, Options{Servers: srv.Addr})
	c := raw(t, srv.Addr)
	unchanged := func() {
		t.Helper()
		names, _, err := c.Children("/simba/m")
		must(t, err)
		for _, name := range names {
			if _, stat, err := c.Get("/simba/m/" + name); err == nil && (stat.Version != 0 || stat.Czxid != stat.Mzxid) {
				t.Errorf("the latch node %s was changed: %+v", name, stat)
			}
		}
	}
	take(t, one, "m", "a", longLease)
	b := block(t, one, "m", "b", longLease)
	block(t, two, "m", "c", longLease)
	acquire(t, two, "m", "d", longLease)
	for _, s := range []*Backend{one, two} {
		renew(t, s, "m", "a", longLease)
		acquire(t, s, "m", "a", longLease)
		acquire(t, s, "m", "d", longLease)
		unchanged()
	}
	giveUp(t, two, "m", "a")
	b.Granted(t)
	unchanged()
}

func TestRequestOfADeadServerIsNotKept(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link, farLink := stores.NewLink(t, srv.Addr), stores.NewLink(t, srv.Addr)
	creator := open(t, Options{Servers: farLink.Addr(), SessionTimeout: time.Minute})
	asker := open(t, Options{Servers: link.Addr(), SessionTimeout: 2 * time.Second, Options: proxy.Options{Timeout: time.Second}})
	c := raw(t, srv.Addr)
	a := take(t, creator, "m", "a", longLease)
	farLink.Blackhole()
	asked := link.BlackholeFrom(`"op":"release"`)
	_, _, err := asker.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "a"})
	unavailable(t, err)
	<-asked
	awaitEmptyInbox(t, c, creator) // when the asker's session is over
	farLink.Heal()
	await(t, "the creator is back", func() bool {
		out, err := creator.Guard(ctx, guardOf("m", "a", longLease))
		return err == nil && out.Token == a.Token
	})
}

// A client's lease must not outlive the session of the server that granted it.
func TestRenewalElsewhereIsNoLongerThanTheCreatorsSession(t *testing.T) {
	srv := stores.ZooKeeper(t)
	there, here := open(t, Options{Servers: srv.Addr, SessionTimeout: 4 * time.Second}), open(t, Options{Servers: srv.Addr})
	take(t, there, "m", "a", time.Second)
	tooLong := there.LongestLease() + time.Millisecond
	if _, err := here.Guard(ctx, guardOf("m", "a", tooLong)); !errors.Is(err, errTooLong) {
		t.Errorf("GUARD: %v; want %v", err, errTooLong)
	}
	if _, err := ask(here, "m", "a"); !errors.Is(err, errTooLong) { // for longLease
		t.Errorf("ACQUIRE: %v; want %v", err, errTooLong)
	}
	renew(t, here, "m", "a", there.LongestLease())
}

func TestRenewalElsewhereMayShortenTheLease(t *testing.T) {
	srv := stores.ZooKeeper(t)
	one := open(t, Options{Servers: srv.Addr})
	two := open(t, Options{Servers: srv.Addr})
	take(t, one, "m", "x", time.Hour)
	y := block(t, one, "m", "y", longLease)
	renew(t, two, "m", "x", 500*time.Millisecond)
	y.Granted(t)
}

func TestSessionBoundElsewhereEndsOnlyItsOwnLease(t *testing.T) {
	srv := stores.ZooKeeper(t)
	there, here := open(t, Options{Servers: srv.Addr}), open(t, Options{Servers: srv.Addr})
	ask := func(b *Backend, session uint64) {
		t.Helper()
		out, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "x", TTL: longLease, Session: session})
		if err != nil || out.Owner != "x" {
			t.Fatalf("ACQUIRE: %+v, %v; want x as the owner", out, err)
		}
	}
	end := func(b *Backend, session uint64) bool {
		t.Helper()
		ok, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "x", Session: session})
		must(t, err)
		return ok
	}
	ask(there, 1)
	ask(here, 2)
	if end(there, 1) {
		t.Error("the end of x's first session ended the lease that is bound to another one")
	}
	ask(there, 3)
	if end(here, 2) {
		t.Error("the end of x's session at the other server ended the lease that is bound to another one")
	}
	ask(here, 4)
	if !end(here, 4) {
		t.Error("the end of x's session at the other server returned false, want true")
	}
}

func TestSubscriberElsewhereGetsTheReservation(t *testing.T) {
	srv := stores.ZooKeeper(t)
	one := open(t, Options{Servers: srv.Addr, Options: proxy.Options{QueueGrace: time.Minute, HandoffWindow: time.Minute}})
	channel := simba.ContenderChannel("m", "b")
	heard := newBroker(channel)
	two := open(t, Options{Servers: srv.Addr, Options: proxy.Options{QueueGrace: time.Minute, HandoffWindow: time.Minute, Notices: heard}})
	subscribe(t, two, channel)
	take(t, one, "m", "a", longLease)
	acquire(t, one, "m", "b", longLease) // b polls at the one server, and subscribes at the other
	block(t, one, "m", "c", longLease)
	awaitAnswer(t, srv, one)
	giveUp(t, one, "m", "a")
	await(t, "b gets the notice", func() bool { return heard.Count(channel, simba.ReleasedNotice("a")) == 1 })
	take(t, one, "m", "b", longLease)
}

func TestMovedWaiterThatLeavesDelaysNobody(t *testing.T) {
	srv := stores.ZooKeeper(t)
	const grace = 300 * time.Millisecond
	one := open(t, Options{Servers: srv.Addr, Options: proxy.Options{QueueGrace: grace}})
	two := open(t, Options{Servers: srv.Addr, Options: proxy.Options{QueueGrace: grace}})
	for _, why := range []simba.EndReason{simba.EndGone, simba.EndTimeout} {
		m := fmt.Sprint("m", why)
		take(t, one, m, "o", longLease)
		first, second := block(t, one, m, "x", time.Hour), block(t, two, m, "x", time.Hour)
		_, err := first.Ticket.End(simba.EndGone)
		must(t, err)
		_, err = second.Ticket.End(why)
		must(t, err)
		z := block(t, one, m, "z", longLease)
		giveUp(t, one, m, "o")
		z.Granted(t)
	}
}

func TestWaiterElsewhereGetsOnlyALeaseThatTheCreatorKeeps(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	const ttl = 1200 * time.Millisecond
	near := open(t, Options{Servers: srv.Addr, Options: proxy.Options{QueueGrace: 5 * time.Second}})
	far := open(t, Options{Servers: link.Addr(), Options: proxy.Options{QueueGrace: 5 * time.Second}})
	take(t, near, "m", "o", longLease)
	_, err := block(t, near, "m", "x", ttl).Ticket.End(simba.EndGone)
	must(t, err)
	second, after := block(t, far, "m", "x", ttl), block(t, near, "m", "z", longLease)
	link.Delay(50 * time.Millisecond)
	giveUp(t, near, "m", "o")
	select {
	case <-second.Woken:
	case <-after.Woken:
		t.Fatal("z got the mutex before x, which waited first")
	case <-time.After(patience):
		t.Fatal("nobody got the mutex")
	}
	out, err := second.Ticket.End(simba.EndWoken)
	answered := time.Now()
	if err != nil || out.Status != simba.StatusAcquired {
		t.Fatalf("the end of x's wait: %+v, %v; want acquired", out, err)
	}
	after.Granted(t)
	if left := out.TTL - time.Since(answered); left > 3*time.Millisecond {
		t.Errorf("z owns the mutex, but x's reply gives x another %v", left)
	}
}

func TestWaitEndsWhenItsContenderWaitsAtAnotherServer(t *testing.T) {
	srv := stores.ZooKeeper(t)
	one, two := open(t, Options{Servers: srv.Addr}), open(t, Options{Servers: srv.Addr})
	take(t, one, "m", "o", longLease)
	first, second := block(t, one, "m", "x", longLease), block(t, two, "m", "x", longLease)
	select {
	case <-first.Woken:
	case <-time.After(patience):
		t.Fatal("the first wait of x goes on without a queue entry")
	}
	if out, err := first.Ticket.End(simba.EndWoken); err != nil || out.Status == simba.StatusAcquired {
		t.Errorf("the end of x's first wait: %+v, %v; want no lease", out, err)
	}
	if q, _, err := one.Queue(ctx, "m", 10); err != nil || len(q) != 1 {
		t.Errorf("QUEUE: %+v, %v; want x once", q, err)
	}
	giveUp(t, one, "m", "o")
	second.Granted(t)
}

func TestLeaseOfAGrantedWaiterRunsElsewhere(t *testing.T) {
	srv := stores.ZooKeeper(t)
	one, two := open(t, Options{Servers: srv.Addr}), open(t, Options{Servers: srv.Addr})
	take(t, one, "m", "a", longLease)
	b := block(t, two, "m", "b", longLease)
	giveUp(t, one, "m", "a")
	b.Granted(t)
	await(t, "the other server reports that b's lease runs", func() bool {
		o, _, err := one.Owner(ctx, "m")
		return err == nil && o.Owner == "b" && o.Now-o.AcquiredAt >= 100
	})
}

// The session of the creator cannot vouch for the lease that its waiter asks for elsewhere.
func TestWaiterWithALongLeaseMovesUnlessItsNodeIsTheFirst(t *testing.T) {
	srv := stores.ZooKeeper(t)
	there, here := open(t, Options{Servers: srv.Addr, SessionTimeout: 4 * time.Second}), open(t, Options{Servers: srv.Addr})
	take(t, here, "m", "o", longLease)
	acquire(t, there, "m", "x", time.Second)
	if out, err := ask(here, "m", "x"); err != nil || out.Status != simba.StatusQueued { // for longLease
		t.Errorf("ACQUIRE of a waiter elsewhere: %+v, %v; want queued", out, err)
	}
	_, _, err := here.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "x"})
	must(t, err)
	blocked := &proxy.Lease{Owner: "w", TTL: time.Second, Since: time.Now(), Queueing: proxy.Blocks}
	_, _, err = there.store.Take(ctx, "m", blocked) // the engine does not know of it, so it does not grant the mutex
	must(t, err)
	giveUp(t, here, "m", "o")
	if out, err := ask(here, "m", "w"); !errors.Is(err, errTooLong) {
		t.Errorf("ACQUIRE of the first waiter elsewhere: %+v, %v; want %v", out, err, errTooLong)
	}
}

// GUARD does not change the binding of a lease.
func TestSessionEndsItsLeaseAfterARenewalElsewhere(t *testing.T) {
	srv := stores.ZooKeeper(t)
	one, two := open(t, Options{Servers: srv.Addr}), open(t, Options{Servers: srv.Addr})
	for _, m := range []string{"here", "elsewhere"} {
		by, other := one, two
		if m == "elsewhere" {
			take(t, one, m, "x", longLease)
			by, other = two, one
		}
		_, _, err := by.Acquire(ctx, simba.AcquireRequest{Mutex: m, Contender: "x", TTL: longLease, Session: 1})
		must(t, err)
		renew(t, other, m, "x", longLease)
		if ok, _, err := by.Release(ctx, simba.ReleaseRequest{Mutex: m, Contender: "x", Session: 1}); err != nil || !ok {
			t.Errorf("%s: the end of the session after GUARD at the other server: %v, %v; want true", m, ok, err)
		}
	}
}

// The contender subscribes at another server, and takes no notice of its reservation.
func TestSubscriberElsewhereGetsOneReservation(t *testing.T) {
	srv := stores.ZooKeeper(t)
	one := open(t, Options{Servers: srv.Addr, Options: proxy.Options{QueueGrace: time.Minute, HandoffWindow: time.Second}})
	channel := simba.ContenderChannel("m", "b")
	heard := newBroker(channel)
	two := open(t, Options{Servers: srv.Addr, Options: proxy.Options{Notices: heard}})
	subscribe(t, two, channel)
	take(t, one, "m", "a", longLease)
	acquire(t, one, "m", "b", longLease)
	c := block(t, one, "m", "c", longLease)
	awaitAnswer(t, srv, one)
	giveUp(t, one, "m", "a")
	await(t, "b gets the notice", func() bool { return heard.Count(channel, simba.ReleasedNotice("a")) == 1 })
	select {
	case <-c.Woken:
	case <-time.After(5500 * time.Millisecond): // two reservations need 6 s
		t.Fatal("the mutex is reserved for b again")
	}
}
