package zookeeper

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// In these tests a link holds one request, or drops its reply, until another server has acted.

// awaitEmptyInbox waits until nobody asks this server for anything.
func awaitEmptyInbox(t *testing.T, c *zk.Conn, b *Backend) {
	t.Helper()
	await(t, "the requests are gone", func() bool {
		names, _, err := c.Children(inbox(b))
		return (err == nil || errors.Is(err, zk.ErrNoNode)) && len(names) == 0
	})
}

// acquiring makes an ACQUIRE in the background.
func acquiring(t *testing.T, b *Backend, r simba.AcquireRequest) (reply <-chan simba.Outcome) {
	out := make(chan simba.Outcome, 1)
	go func() {
		o, _, err := b.Acquire(ctx, r)
		if err != nil {
			t.Errorf("ACQUIRE of %s: %v", r.Contender, err)
		}
		out <- o
	}()
	return out
}

// A creator sends a change for another server, which withdraws its request before the change arrives.
func TestChangeThatArrivesAfterTheWithdrawalIsNotMade(t *testing.T) {
	srv, link, far, near := apart(t, Options{}, Options{Options: proxy.Options{Timeout: time.Second}})
	c := raw(t, srv.Addr)
	a := take(t, far, "m", "a", longLease)
	for name, request := range map[string]struct {
		change string // is in the creator's change
		ask    func() error
	}{
		"GUARD": {`"ttl":4321`, func() error { _, err := near.Guard(ctx, guardOf("m", "a", 4321*time.Millisecond)); return err }},
		"RELEASE": {"latch-0000000000", func() error {
			_, _, err := near.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "a"})
			return err
		}},
	} {
		held := link.BlackholeFrom(request.change)
		unavailable(t, request.ask())
		<-held
		awaitEmptyInbox(t, c, far)
		link.Heal()
		ownerAgain(t, far, "m")
		if o, _, err := near.Owner(ctx, "m"); err != nil || o.Token != a.Token || o.TTLAt-o.AcquiredAt != longLease.Milliseconds() {
			t.Fatalf("OWNER after a withdrawn %s: %+v, %v; want a with its lease", name, o, err)
		}
	}
}

// The other server deletes its request when it has read the answer, so the creator's repeated change
// finds none.
func TestRenewalWhoseAnswerWasReadIsCounted(t *testing.T) {
	srv, link, far, near := apart(t, Options{}, Options{Options: proxy.Options{Timeout: patience}})
	c := raw(t, srv.Addr)
	take(t, far, "m", "a", longLease/2)
	dropped := link.DropRepliesFrom(`"ttl":15000`)
	renew(t, near, "m", "a", longLease)
	<-dropped
	awaitEmptyInbox(t, c, far)
	link.Heal()
	if o := ownerAgain(t, far, "m"); o.TTLAt-o.AcquiredAt != longLease.Milliseconds() {
		t.Errorf("OWNER at a's server: %+v; want the windows of the renewal", o)
	}
}

// While an ACQUIRE without a wait finds another owner, its node becomes the first. Other servers may
// have reported its contender as the owner.
func TestFirstNodeIsNeverTakenBack(t *testing.T) {
	_, link, far, near := apart(t, Options{Options: proxy.Options{Timeout: patience}}, Options{})
	for mutex, change := range map[string]string{"polls": `"kind":"polling"`, "noqueue": "latch-0000000001"} {
		take(t, near, mutex, "a", longLease)
		held := link.BlackholeFrom(change)
		reply := acquiring(t, far, simba.AcquireRequest{Mutex: mutex, Contender: "b", TTL: longLease, NoQueue: mutex == "noqueue"})
		<-held
		giveUp(t, near, mutex, "a")
		o, _, err := near.Owner(ctx, mutex)
		if err != nil || o.Owner != "b" {
			t.Errorf("%s: OWNER: %+v, %v; want b, whose node is the first", mutex, o, err)
		}
		link.Heal()
		if out := <-reply; out.Status != simba.StatusAcquired || out.Token != o.Token {
			t.Errorf("%s: ACQUIRE of b: %+v; want acquired with the token of %+v", mutex, out, o)
		}
	}
}

// The reply to the change that queues b is lost. Before the server repeats the change, b's node becomes
// the first.
func TestOwnerWhoseQueueEntryWasUnconfirmedIsTheOwnerElsewhere(t *testing.T) {
	_, link, far, near := apart(t, Options{Options: proxy.Options{Timeout: patience}}, Options{})
	take(t, near, "m", "a", longLease)
	dropped := link.DropRepliesFrom(`"kind":"polling"`)
	reply := acquiring(t, far, simba.AcquireRequest{Mutex: "m", Contender: "b", TTL: longLease})
	<-dropped
	await(t, "b is queued", func() bool {
		q, _, err := near.Queue(ctx, "m", 1)
		return err == nil && len(q) == 1 && !q[0].Blocked
	})
	giveUp(t, near, "m", "a")
	link.Heal()
	out := <-reply
	if o, _, err := near.Owner(ctx, "m"); out.Status != simba.StatusAcquired || err != nil || o.Owner != "b" || o.Token != out.Token {
		t.Errorf("ACQUIRE of b: %+v; OWNER at the other server: %+v, %v; want b to own the mutex", out, o, err)
	}
}

func TestUnansweredAcquireOfATakenMutexBeginsNothing(t *testing.T) {
	_, link, far, near := apart(t, Options{Options: proxy.Options{Timeout: time.Second}}, Options{})
	take(t, near, "m", "a", longLease)
	link.DropReplies()
	_, _, err := far.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "b", TTL: longLease})
	unavailable(t, err)
	link.Heal()
	var out simba.Outcome
	await(t, "b's server is back", func() bool {
		out, _, err = far.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "b", TTL: longLease})
		return err == nil
	})
	if out.Status != simba.StatusQueued || out.Owner != "a" {
		t.Errorf("ACQUIRE of b: %+v; want queued behind a", out)
	}
}

// While a server is cut off, it cannot even send the change that takes a waiter out of the queue.
func TestWaitThatEndsInAnOutageLeavesNoNode(t *testing.T) {
	_, link, far, near := apart(t, Options{Options: proxy.Options{Timeout: time.Second}}, Options{})
	take(t, near, "m", "a", time.Hour) // its end would also remove b
	w := block(t, far, "m", "b", longLease)
	link.Refuse()
	await(t, "the server is cut off", func() bool { return !isConnected(far.store.slotOf("m").session) })
	_, err := w.Ticket.End(simba.EndTimeout)
	unavailable(t, err)
	time.Sleep(3 * time.Second / 2) // the next attempt fails, too
	link.Heal()
	await(t, "the queue is empty", func() bool {
		q, _, err := near.Queue(ctx, "m", 10)
		return err == nil && len(q) == 0
	})
}

func isConnected(s *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.connected:
		return true
	default:
		return false
	}
}

func TestServerThatBeginsToStopIsNotAsked(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	one := open(t, Options{Servers: srv.Addr})
	two := open(t, Options{Servers: link.Addr(), Options: proxy.Options{Timeout: 8 * time.Second}})
	take(t, one, "m", "a", longLease)
	renew(t, two, "m", "a", longLease) // now the inbox exists
	held := link.BlackholeFrom(`"op":"release"`)
	failed := make(chan error, 1)
	go func() {
		ok, _, err := two.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		if err == nil && !ok {
			err = errors.New("false")
		}
		failed <- err
	}()
	<-held
	must(t, one.Close())
	link.Heal()
	if err := <-failed; err != nil {
		t.Errorf("RELEASE, while the owner's server stops: %v; want true", err)
	}
}

func TestStoppedServersTenureEndsOnlyWithItsToken(t *testing.T) {
	srv := stores.ZooKeeper(t)
	one, two := open(t, Options{Servers: srv.Addr}), open(t, Options{Servers: srv.Addr})
	old := take(t, one, "m", "a", longLease)
	giveUp(t, one, "m", "a")
	now := take(t, one, "m", "a", longLease)
	must(t, one.Close())
	for _, token := range []uint64{old.Token, now.Token} {
		ok, _, err := two.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "a", Token: token})
		if want := token == now.Token; err != nil || ok != want {
			t.Errorf("RELEASE with token %d in the tenure with token %d: %v, %v; want %v", token, now.Token, ok, err, want)
		}
	}
}

func TestStoppedServersTenureEndsEvenIfTheReplyIsLost(t *testing.T) {
	_, link, two, one := apart(t, patient(), Options{})
	take(t, one, "m", "a", longLease)
	must(t, one.Close())
	lost := link.DropReplyTo("latch-0000000000")
	ok, _, err := two.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "a"})
	<-lost
	if !ok || err != nil {
		t.Errorf("RELEASE: %v, %v; want true", ok, err)
	}
}

// Two GUARDs may get the mutex's lock in the other order.
func TestOlderRenewalShortensNoLease(t *testing.T) {
	b := open(t, Options{Servers: stores.ZooKeeper(t).Addr})
	take(t, b, "m", "x", longLease)
	older := proxy.Lease{Owner: "x", TTL: longLease, Since: time.Now()}
	newer := proxy.Lease{Owner: "x", TTL: longLease, Since: time.Now().Add(time.Millisecond)}
	time.Sleep(time.Until(newer.Since))
	for _, l := range []proxy.Lease{newer, older} {
		if ok, err := b.store.Renew(ctx, "m", &l); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	m := b.store.lock("m")
	defer b.store.unlock(m)
	if end := m.entries["x"].end(); end.Before(newer.Since.Add(longLease)) {
		t.Errorf("the lease ends %v before the end that the newer GUARD was given", newer.Since.Add(longLease).Sub(end))
	}
}

// QUEUE reads a node for each waiter, which may take long.
func TestQueueReadsTheWaitersWithoutTheLock(t *testing.T) {
	_, link, far, near := apart(t, patient(), Options{})
	take(t, near, "m", "a", longLease)
	block(t, near, "m", "b", longLease)
	m := near.store.lock("m")
	held := link.BlackholeFrom(string(m.entries["b"].guid))
	near.store.unlock(m)
	go far.Queue(ctx, "m", 10)
	<-held
	far.store.mu.Lock()
	m = far.store.mutexes["m"]
	far.store.mu.Unlock()
	if m.lock.TryLock() {
		m.lock.Unlock()
	} else {
		t.Error("QUEUE holds the mutex's lock while it reads a waiter")
	}
	link.Heal()
}

func TestEndIsPublishedAfterTheEndOfTheSession(t *testing.T) {
	_, link, far, near := apart(t, Options{SessionTimeout: 4 * time.Second, Options: proxy.Options{Timeout: time.Second}}, Options{})
	take(t, far, "m", "a", time.Minute)
	link.Blackhole()
	await(t, "the session is given up", func() bool { return !far.store.slotOf("m").session.alive() })
	if e := lastEvent(far, "m"); e.Kind != simba.EventAcquired {
		t.Errorf("the last event of a session that may still live: %+v; want acquired", e)
	}
	link.Heal() // the ensemble has not ended the session yet
	await(t, "the end is published", func() bool { return lastEvent(far, "m").Kind == simba.EventExpired })
	if o, _, err := near.Owner(ctx, "m"); err != nil || o.Owner != "" {
		t.Errorf("OWNER at the other server, after a's server has published the end: %+v, %v; want nobody", o, err)
	}
}

// The ensemble executes a renewal late. The owner's server counts the lease from when it sent the
// renewal, and so must other servers.
func TestLateRenewalIsReportedFromWhenItWasSent(t *testing.T) {
	srv, link, far, near := apart(t, Options{Options: proxy.Options{Timeout: patience}}, Options{})
	c := raw(t, srv.Addr)
	take(t, far, "m", "a", longLease)
	held := link.BlackholeFrom(`"ttl":14321`)
	failed := make(chan error, 1)
	go func() {
		_, err := far.Guard(ctx, guardOf("m", "a", 14321*time.Millisecond))
		failed <- err
	}()
	<-held
	time.Sleep(time.Second) // how late the renewal is
	create(t, c, "/late", "", zk.FlagEphemeral)
	_, late, err := c.Get("/late") // by the ensemble's clock
	must(t, err)
	link.Heal()
	must(t, <-failed)
	if o, _, err := near.Owner(ctx, "m"); err != nil || o.TTLAt-o.AcquiredAt != 14321 || o.AcquiredAt >= late.Ctime {
		t.Errorf("OWNER at the other server: %+v, %v; want the windows of the renewal, from before %d", o, err, late.Ctime)
	}
}

// x is blocked at its server and asks another one. Before its server has deleted x's node for that, the
// node becomes the first, and other servers report x as the owner.
func TestFirstNodeIsNotTakenBackForAnotherServer(t *testing.T) {
	_, link, far, near := apart(t, patient(), patient())
	take(t, near, "m", "o", longLease)
	block(t, far, "m", "x", longLease)
	block(t, near, "m", "y", longLease)
	held := link.BlackholeFrom("latch-0000000001") // the deletion of x's node
	reply := acquiring(t, near, simba.AcquireRequest{Mutex: "m", Contender: "x", TTL: longLease})
	<-held
	giveUp(t, near, "m", "o")
	o, _, err := near.Owner(ctx, "m")
	must(t, err)
	link.Heal()
	if out := <-reply; out.Owner != "x" || out.Token != o.Token {
		t.Errorf("ACQUIRE of x: %+v; want the tenure that OWNER reported: %+v", out, o)
	}
	if now, _, err := near.Owner(ctx, "m"); err != nil || now.Token != o.Token {
		t.Errorf("OWNER: %+v, %v; want the tenure before: %+v", now, err, o)
	}
}

// The connection of a mutex stalls, so this server does not hear of a new waiter.
func TestScanSeesAWaiterThatAnotherServerHasQueued(t *testing.T) {
	_, link, far, near := apart(t, Options{SessionTimeout: 6 * time.Second, Options: proxy.Options{Timeout: patience}}, Options{})
	m := "m"
	for far.store.slotOf(m) == far.store.slots[0] { // the slot that lists the mutexes
		m += "m"
	}
	subscribe(t, far, simba.MutexChannel(m))
	take(t, near, m, "o", longLease)
	await(t, "the owner's node is watched", func() bool { return len(far.store.known(m)) == 1 })
	<-link.StallFrom(string(far.store.slotOf(m).session.tag))
	block(t, near, m, "x", longLease)
	if page, _, err := far.Scan(ctx, simba.ScanRequest{Count: 100, Contended: true}); err != nil || len(page.Mutexes) != 1 {
		t.Errorf("SCAN CONTENDED: %+v, %v; want %s", page, err, m)
	}
}
