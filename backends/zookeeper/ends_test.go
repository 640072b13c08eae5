package zookeeper

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// In these tests a wait, a tenure, or the interest in a mutex ends while something else is under way.

func impatient() Options { return Options{Options: proxy.Options{Timeout: time.Second}} }

func patient() Options { return Options{Options: proxy.Options{Timeout: patience}} }

func owner(t *testing.T, b *Backend, mutex string) string {
	t.Helper()
	o, _, err := b.Owner(ctx, mutex)
	must(t, err)
	return o.Owner
}

func awaitQueue(t *testing.T, b *Backend, mutex string, want int) {
	t.Helper()
	await(t, "the queue has that length", func() bool {
		q, _, err := b.Queue(ctx, mutex, 10)
		return err == nil && len(q) == want
	})
}

// waiting makes a blocked ACQUIRE in the background, and waits until it has entered.
func waiting(t *testing.T, b *Backend, mutex, contender string) (w *conformance.Blocked, reply <-chan error) {
	t.Helper()
	w = conformance.NewBlocked()
	errs := make(chan error, 1)
	go func() {
		o, ticket, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: longLease, Waiter: w})
		if w.Ticket = ticket; err == nil && o.Status != simba.StatusWaiting {
			err = errors.New(string(o.Status))
		}
		errs <- err
	}()
	await(t, "the request has entered", func() bool { return b.Waiters.Find(mutex, contender) != nil })
	return w, errs
}

func endsWithout(t *testing.T, w *conformance.Blocked) {
	t.Helper()
	<-w.Woken
	if o, err := w.Ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusTimeout {
		t.Errorf("the end of a wait that another server has ended: %+v, %v; want a timeout", o, err)
	}
}

func TestEntryThatCannotBeDeletedIsDeletedLater(t *testing.T) {
	srv := stores.ZooKeeper(t)
	one, two := open(t, Options{Servers: srv.Addr}), open(t, Options{Servers: srv.Addr})
	o := operator(t, srv.Addr)
	take(t, one, "m", "a", longLease)
	setACL(t, o, "/simba/m", without(zk.PermDelete))
	_, _, err := two.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "b", TTL: longLease, NoQueue: true})
	mustBeMisconfigured(t, "ACQUIRE", err, "no permission (NoAuth)")
	setACL(t, o, "/simba/m", zk.WorldACL(zk.PermAll))
	awaitQueue(t, one, "m", 0)
}

// A client gets an error from one server, and waits at another one.
func TestErrorEndsNoWaitAtAnotherServer(t *testing.T) {
	_, link, far, near := apart(t, impatient(), Options{})
	take(t, near, "m", "o", longLease)
	link.Blackhole()
	_, _, err := far.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "x", TTL: longLease})
	unavailable(t, err)
	x := block(t, near, "m", "x", longLease)
	link.Heal()
	ownerAgain(t, far, "m")
	time.Sleep(500 * time.Millisecond) // the far server deletes its entry again, in case there is one
	giveUp(t, near, "m", "o")
	x.Granted(t)
}

func TestReleaseOfAWaiterInAnOutageLeavesNoNode(t *testing.T) {
	_, link, far, near := apart(t, impatient(), Options{})
	take(t, near, "m", "o", longLease)
	x := block(t, far, "m", "x", longLease)
	link.BlackholeFrom("latch-0000000001")
	_, _, err := far.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "x"})
	unavailable(t, err)
	<-x.Woken
	_, err = x.Ticket.End(simba.EndWoken)
	unavailable(t, err)
	link.Heal()
	awaitQueue(t, near, "m", 0)
	giveUp(t, near, "m", "o")
	take(t, near, "m", "z", longLease)
}

// Another server ends the queue entry of a contender that is about to block here.
func TestWaitThatEndsDuringItsFirstStepLeavesNothing(t *testing.T) {
	for name, free := range map[string]bool{"taken": false, "free": true} {
		t.Run(name, func(t *testing.T) {
			_, link, far, near := apart(t, patient(), patient())
			take(t, near, "m", "o", longLease)
			acquire(t, far, "m", "x", longLease)
			held := link.BlackholeFrom(`"status":"released"`)
			released := make(chan error, 1)
			go func() {
				_, _, err := near.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "x"})
				released <- err
			}()
			<-held
			w, reply := waiting(t, far, "m", "x")
			if free {
				giveUp(t, near, "m", "o")
			}
			link.Heal()
			must(t, <-released)
			must(t, <-reply)
			endsWithout(t, w)
			if awaitQueue(t, near, "m", 0); !free {
				giveUp(t, near, "m", "o")
			}
			if o := owner(t, near, "m"); o != "" {
				t.Errorf("the owner is %s; want nobody", o)
			}
		})
	}
}

func TestCloseDuringAnAcquireLeavesNoTenure(t *testing.T) {
	_, link, far, near := apart(t, Options{}, Options{})
	take(t, near, "m", "w", longLease)
	giveUp(t, near, "m", "w")
	lost := link.DropReplyTo("latch-")
	failed := make(chan error, 1)
	go func() {
		_, _, err := far.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "x", TTL: longLease})
		failed <- err
	}()
	<-lost
	must(t, far.Close())
	err := <-failed
	if o := owner(t, near, "m"); err == nil || o != "" {
		t.Errorf("ACQUIRE: %v; the owner after Close is %q; want an error and nobody", err, o)
	}
}

// The watcher of a pattern sees when a mutex's node is created. It does not see a new inbox.
func TestServerWithAPatternSubscriberSeesItsNewInbox(t *testing.T) {
	srv := stores.ZooKeeper(t)
	one := open(t, Options{Servers: srv.Addr, Options: proxy.Options{Notices: patternSubscriber{newBroker()}}})
	two := open(t, Options{Servers: srv.Addr})
	c := raw(t, srv.Addr)
	subscribe(t, one, "simba:*")
	take(t, one, "m", "a", longLease)
	for range 2 {
		renew(t, two, "m", "a", longLease)
		await(t, "the inbox is gone", func() bool { _, _, err := c.Children(inbox(one)); return errors.Is(err, zk.ErrNoNode) })
	}
}

func TestEndAtAnotherServerIsRecordedAndCounted(t *testing.T) {
	srv := stores.ZooKeeper(t)
	one, two := open(t, Options{Servers: srv.Addr}), open(t, Options{Servers: srv.Addr})
	a := take(t, one, "m", "a", longLease)
	if ok, _, err := two.Break(ctx, "m", "stuck"); err != nil || !ok {
		t.Fatalf("BREAK: %v, %v; want true", ok, err)
	}
	if e := lastEvent(two, "m"); e.Kind != simba.EventBroken || e.Reason != "stuck" || e.Token != a.Token {
		t.Errorf("the last event: %+v; want that of BREAK", e)
	}
	take(t, one, "m", "b", longLease)
	giveUp(t, two, "m", "b")
	if s := two.Stats(); s.Broken != 1 || s.Released != 1 {
		t.Errorf("figures: %+v; want 1 broken, 1 released", s)
	}
}

// The session of a waiter's server ends. The contender goes to another server before the first one has
// a new session.
func TestLostWaitEndsNoWaitAtAnotherServer(t *testing.T) {
	far := impatient()
	far.SessionTimeout = 4 * time.Second
	_, link, one, two := apart(t, far, Options{})
	take(t, two, "m", "o", longLease)
	old := block(t, one, "m", "x", longLease)
	link.Blackhole()
	awaitQueue(t, two, "m", 0)
	x := block(t, two, "m", "x", longLease)
	link.Heal()
	endsWithout(t, old)
	giveUp(t, two, "m", "o")
	x.Granted(t)
}

func TestNodeWhoseNumberIsTooLargeIsNotKept(t *testing.T) {
	defer func(n string) { lastNumber = n }(lastNumber)
	lastNumber = "0000000001"
	b := open(t, Options{Servers: stores.ZooKeeper(t).Addr})
	take(t, b, "m", "a", longLease)
	acquire(t, b, "m", "b", longLease)
	if _, err := ask(b, "m", "c"); !errors.Is(err, errNumbers) {
		t.Errorf("ACQUIRE: %v; want %v", err, errNumbers)
	}
	for _, contender := range []string{"a", "b"} {
		if _, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: contender}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ask(b, "m", "a"); !errors.Is(err, errNumbers) {
		t.Errorf("ACQUIRE of a free mutex: %v; want %v", err, errNumbers)
	}
	if o, _, err := b.Owner(ctx, "m"); err != nil || o.Owner != "" {
		t.Errorf("OWNER: %+v, %v; want nobody", o, err)
	}
}

// The lease of a waiter ends before its server knows that the session lives.
func TestWaiterWhoseGrantIsConfirmedTooLateGetsTheMutex(t *testing.T) {
	_, link, far, near := apart(t, impatient(), Options{})
	take(t, near, "m", "o", longLease)
	x := block(t, far, "m", "x", 300*time.Millisecond)
	s := far.store.slotOf("m").session
	held := link.BlackholeFrom(s.marker(s.tag) + "\xff\xff\xff\xff") // a check of any version
	await(t, "the grant needs a confirmation", func() bool {
		s.mu.Lock()
		s.confirmed = time.Now().Add(-s.timeout / 4)
		s.mu.Unlock()
		giveUp(t, near, "m", "o")
		select {
		case <-held:
			return true
		case <-time.After(200 * time.Millisecond): // a heartbeat came between
			_, _, err := far.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "x"})
			must(t, err)
			take(t, near, "m", "o", longLease)
			x = block(t, far, "m", "x", 300*time.Millisecond)
			return false
		}
	})
	time.Sleep(1500 * time.Millisecond) // the engine gives up, and the lease is over
	link.Heal()
	x.Granted(t)
}

// The connection of a blocked waiter breaks, and its contender asks again. Meanwhile its node becomes
// the first.
func TestWaiterThatAsksAgainKeepsTheFirstNode(t *testing.T) {
	b := open(t, Options{Servers: stores.ZooKeeper(t).Addr})
	take(t, b, "m", "o", longLease)
	block(t, b, "m", "x", longLease)
	m := b.store.lock("m")
	defer b.store.unlock(m)
	x := m.entries["x"]
	names, err := x.s.children(ctx, "m")
	must(t, err)
	m.apart(func() { giveUp(t, b, "m", "o") })
	x.kind = kindBlocked // as before the engine has served it
	_, err = b.store.stayQueued(ctx, m, x, names, proxy.Lease{Owner: "x", Queueing: proxy.Polls})
	if !errors.Is(err, errChanged) || !m.has(x) {
		t.Errorf("%v; x keeps its node: %v; want %v and true", err, m.has(x), errChanged)
	}
}

func TestSessionEndsALeaseWhoseRenewalGotNoReply(t *testing.T) {
	_, link, far, near := apart(t, impatient(), Options{})
	r := simba.AcquireRequest{Mutex: "m", Contender: "x", TTL: longLease, Session: 1}
	_, _, err := far.Acquire(ctx, r)
	must(t, err)
	link.BlackholeFrom(`"ttl":14321`)
	r.TTL = 14321 * time.Millisecond
	_, _, err = far.Acquire(ctx, r)
	unavailable(t, err)
	link.Heal()
	await(t, "the lease is renewed", func() bool {
		o, _, err := near.Owner(ctx, "m")
		return err == nil && o.TTLAt-o.AcquiredAt == r.TTL.Milliseconds()
	})
	ownerAgain(t, far, "m")
	if ok, _, err := far.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "x", Session: 1}); err != nil || !ok {
		t.Errorf("the end of the session: %v, %v; want true", ok, err)
	}
}

// The windows that a server knows of another server's lease are read again before they end.
func TestReleaseAfterGuardThroughTwoServersIsNoExpiry(t *testing.T) {
	srv := stores.ZooKeeper(t)
	broker := newBroker("simba:{m}")
	one, two := open(t, Options{Servers: srv.Addr}), open(t, Options{Servers: srv.Addr, Options: proxy.Options{Notices: broker}})
	subscribe(t, two, "simba:{m}")
	const ttl = 2 * time.Second
	token := take(t, one, "m", "x", ttl).Token
	time.Sleep(ttl / 5) // until nothing is under way
	renew(t, two, "m", "x", ttl)
	time.Sleep(ttl * 7 / 10)
	renew(t, one, "m", "x", longLease)
	time.Sleep(ttl / 2)
	giveUp(t, one, "m", "x")
	await(t, "the other server has seen the end", func() bool {
		events, _, err := two.History(ctx, simba.HistoryRequest{Mutex: "m", Count: 10})
		must(t, err)
		for _, e := range events {
			if e.Kind == simba.EventExpired {
				t.Fatalf("event %+v; the owner %d has released the mutex", e, token)
			}
			if e.Kind == simba.EventReleased {
				return true
			}
		}
		return false
	})
}
