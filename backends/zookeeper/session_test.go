package zookeeper

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

func lastEvent(b *Backend, mutex string) (e simba.Event) {
	events, _, err := b.History(ctx, simba.HistoryRequest{Mutex: mutex, Count: 1})
	if err == nil && len(events) == 1 {
		e = events[0]
	}
	return e
}

func TestOwnerLosesItsLeaseBeforeAnotherGetsTheMutex(t *testing.T) {
	_, link, far, near := apart(t, Options{SessionTimeout: 2 * time.Second, Options: proxy.Options{Timeout: time.Second}}, Options{})
	take(t, far, "m", "a", time.Minute)
	b := block(t, near, "m", "b", time.Minute)
	link.Blackhole()
	b.Granted(t)
	if far.store.slotOf("m").session.alive() {
		t.Error("b owns the mutex, but a's server has not given its session up")
	}
	_, err := far.Guard(ctx, guardOf("m", "a", time.Minute))
	unavailable(t, err)
	link.Heal()
	await(t, "a's server is back", func() bool {
		out, err := far.Guard(ctx, guardOf("m", "a", time.Minute))
		return err == nil && out.Status == simba.StatusLost && out.Owner == "b"
	})
	events, _, err := far.History(ctx, simba.HistoryRequest{Mutex: "m", Count: 10})
	if err != nil || !slices.ContainsFunc(events, func(e simba.Event) bool {
		return e.Kind == simba.EventExpired && e.Owner == "a" && e.Reason == "zookeeper session lost"
	}) {
		t.Errorf("the events at a's server: %+v, %v; want the end of a's tenure", events, err)
	}
}

func TestWaitersSurviveALostSessionInOrder(t *testing.T) {
	_, link, far, near := apart(t, Options{SessionTimeout: time.Second, Options: proxy.Options{Timeout: time.Second}}, Options{})
	take(t, near, "m", "a", time.Minute)
	var names []string
	var waits []*conformance.Blocked
	for i := range 5 {
		names = append(names, fmt.Sprint("b", 9-i))
		waits = append(waits, block(t, far, "m", names[i], time.Minute))
	}
	queue := func() (list []string) {
		q, _, _ := near.Queue(ctx, "m", 10)
		for _, e := range q {
			list = append(list, e.Contender)
		}
		return list
	}
	link.Blackhole()
	await(t, "the waiters' nodes are gone with their session", func() bool { return len(queue()) == 0 })
	link.Heal()
	await(t, "the waiters have new nodes, in order", func() bool { return slices.Equal(queue(), names) })
	giveUp(t, near, "m", "a")
	waits[0].Granted(t)
}

// The ensemble chose a shorter timeout for the new session.
func TestWaiterGetsNoLeaseThatTheNextSessionCannotVouchFor(t *testing.T) {
	srv := stores.ZooKeeper(t)
	near := open(t, Options{Servers: srv.Addr})
	far := open(t, Options{Servers: srv.Addr, SessionTimeout: 6 * time.Second, Options: proxy.Options{Timeout: patience}})
	far.store.options.SessionTimeout = 2 * time.Second // for the next session; the check of the store reads it only later
	longest := far.LongestLease()
	take(t, near, "m", "o", longLease)
	long := block(t, far, "m", "long", longest)
	short := block(t, far, "m", "short", time.Second)
	far.store.slotOf("m").session.abandon()
	if o, _, err := far.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "late", TTL: longest, Waiter: conformance.NewBlocked()}); !errors.Is(err, errTooLong) {
		t.Errorf("ACQUIRE during the replacement: %+v, %v; want %v", o, err, errTooLong)
	}
	select {
	case <-long.Woken:
	case <-time.After(patience):
		t.Fatal("the wait goes on")
	}
	if o, err := long.Ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusTimeout {
		t.Errorf("the end of the long lease's wait: %+v, %v; want timeout", o, err)
	}
	giveUp(t, near, "m", "o")
	short.Granted(t)
}

func TestPollingWaitersGetANoticeAfterALostSession(t *testing.T) {
	srv := stores.ZooKeeper(t)
	mutex, own := simba.MutexChannel("m"), simba.ContenderChannel("m", "b")
	heard := newBroker(mutex, own)
	b := open(t, Options{Servers: srv.Addr, SessionTimeout: 4 * time.Second, Options: proxy.Options{Notices: heard, Timeout: 4 * time.Second}})
	for _, channel := range []string{mutex, own} {
		subscribe(t, b, channel)
	}
	take(t, b, "m", "a", time.Hour)
	if out := acquire(t, b, "m", "b", time.Hour); out.Status != simba.StatusQueued {
		t.Fatalf("ACQUIRE of b: %+v; want queued", out)
	}
	srv.Pause()
	await(t, "the session is given up", func() bool {
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		return !b.store.slotOf("m").session.alive()
	})
	srv.Resume()
	for _, channel := range []string{mutex, own} {
		await(t, "a notice is published on "+channel, func() bool { return heard.Count(channel, simba.ReleasedNotice("a")) == 1 })
	}
	take(t, b, "m", "b", time.Hour)
}

func TestUnansweredAcquireIsUndoneBeforeTheNextOne(t *testing.T) {
	srv, link, far, near := apart(t, Options{Options: proxy.Options{Timeout: time.Second}}, Options{})
	take(t, near, "m", "w", longLease)
	giveUp(t, near, "m", "w")
	link.DropReplies()
	_, _, err := far.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "x", TTL: longLease})
	unavailable(t, err)
	link.Heal()
	var x simba.Outcome
	await(t, "x acquires elsewhere", func() bool {
		x, _, err = near.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "x", TTL: longLease})
		return err == nil && x.Owner == "x"
	})
	noOtherOwner(t, near, "m", 2*time.Second)
	if o, _, err := far.Owner(ctx, "m"); err != nil || o.Token != x.Token {
		t.Errorf("OWNER at x's first server: %+v, %v; want the tenure %+v", o, err, x)
	}
	c := raw(t, srv.Addr)
	await(t, "only the nodes of x's tenure are left", func() bool {
		names, _, err := c.Children("/simba/m")
		return err == nil && len(names) == 1 && len(leases(t, c)) == 1
	})
}

func TestUnansweredRenewalIsCounted(t *testing.T) {
	_, link, far, near := apart(t, Options{Options: proxy.Options{Timeout: time.Second}}, Options{})
	a := take(t, far, "m", "a", 1500*time.Millisecond)
	link.DropReplies()
	_, err := far.Guard(ctx, guardOf("m", "a", longLease))
	unavailable(t, err)
	link.Heal()
	noOtherOwner(t, near, "m", 2*time.Second)
	var out simba.Outcome
	await(t, "the server is back", func() bool {
		out, err = far.Guard(ctx, guardOf("m", "a", longLease))
		return err == nil
	})
	if out.Status != simba.StatusRenewed || out.Token != a.Token {
		t.Errorf("GUARD: %+v; want renewed with the token of %+v", out, a)
	}
}

func TestRequestIsNotRepeatedAfterItsSession(t *testing.T) {
	srv := stores.ZooKeeper(t)
	near := open(t, Options{Servers: srv.Addr})
	for _, m := range []string{"guarded", "released"} {
		link := stores.NewLink(t, srv.Addr)
		far := open(t, Options{Servers: link.Addr(), SessionTimeout: 2 * time.Second, Options: proxy.Options{Timeout: patience}})
		take(t, far, m, "x", time.Minute)
		link.DropReplies()
		failed := make(chan error, 1)
		go func() {
			var err error
			if m == "guarded" {
				_, err = far.Guard(ctx, guardOf(m, "x", time.Minute))
			} else {
				_, _, err = far.Release(ctx, simba.ReleaseRequest{Mutex: m, Contender: "x"})
			}
			failed <- err
		}()
		await(t, "the session is over", func() bool {
			o, _, err := near.Owner(ctx, m)
			return err == nil && o.Owner == "" && !far.store.slotOf(m).session.alive()
		})
		next := take(t, near, m, "x", time.Minute)
		link.Heal()
		unavailable(t, <-failed)
		if o, _, err := near.Owner(ctx, m); err != nil || o.Token != next.Token {
			t.Errorf("OWNER after the late request: %+v, %v; want the tenure %+v unchanged", o, err, next)
		}
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
	w := block(t, b, "m", "b", time.Minute)
	names, _, err := c.Children("/simba/m")
	must(t, err)
	first := slices.MinFunc(names, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
	must(t, c.Delete("/simba/m/"+first, -1))
	w.Granted(t)
	out, err := b.Guard(ctx, guardOf("m", "a", time.Minute))
	if err != nil || out.Status != simba.StatusLost || out.Owner != "b" {
		t.Errorf("GUARD of a: %+v, %v; want lost with b as the owner", out, err)
	}
	await(t, "a's lease node is deleted too", func() bool { return len(leases(t, c)) == 1 })
}

func TestUnreadableLeaseNodeOfTheOwnerIsWrittenAgain(t *testing.T) {
	srv := stores.ZooKeeper(t)
	b, other := open(t, Options{Servers: srv.Addr}), open(t, Options{Servers: srv.Addr})
	c := raw(t, srv.Addr)
	a := take(t, b, "m", "a", longLease)
	if _, err := c.Set("/simba-leases/"+leases(t, c)[0], []byte("{}"), -1); err != nil {
		t.Fatal(err)
	}
	if o, _, err := other.Owner(ctx, "m"); err != nil || o.Owner != "a" || o.Token != a.Token {
		t.Errorf("OWNER at another server: %+v, %v; want a", o, err)
	}
	renew(t, b, "m", "a", longLease)
	if o, _, err := other.Owner(ctx, "m"); err != nil || o.TTLAt-o.AcquiredAt != longLease.Milliseconds() {
		t.Errorf("OWNER after the renewal: %+v, %v; want the windows", o, err)
	}
	giveUp(t, b, "m", "a")
}

// A heartbeat that waits for a connection when the server stops must not undo the mark of stopping.
func TestMarkOfAStoppingServerStays(t *testing.T) {
	srv := stores.ZooKeeper(t)
	near := open(t, Options{Servers: srv.Addr})
	for i := range 3 {
		link := stores.NewLink(t, srv.Addr)
		far := open(t, Options{Servers: link.Addr(), Options: proxy.Options{Timeout: patience}})
		m := fmt.Sprint("m", i)
		take(t, far, m, "a", longLease)
		link.Refuse()
		time.Sleep(3 * maxHeartbeatInterval / 2) // now a heartbeat waits for a connection
		closed := make(chan error, 1)
		go func() { closed <- far.Close() }()
		await(t, "the server stops", far.Stopped)
		link.Heal()
		must(t, <-closed)
		giveUp(t, near, m, "a")
	}
}

// The engine must not take the store for away if only one of its sessions is over.
func TestLostSessionStopsOnlyItsMutexes(t *testing.T) {
	b := open(t, Options{Servers: stores.ZooKeeper(t).Addr, Options: proxy.Options{Timeout: time.Second}})
	first, other := "", ""
	for i := 0; first == "" || other == ""; i++ {
		if m := fmt.Sprint("m", i); b.store.slotOf(m) == b.store.slots[0] {
			first = m
		} else {
			other = m
		}
	}
	take(t, b, other, "a", longLease)
	b.store.slots[0].session.abandon()
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		_, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: first, Contender: "a", TTL: longLease})
		unavailable(t, err)
		renew(t, b, other, "a", longLease)
	}
}

// resetConnections passes connections on to a ZooKeeper. While on is true, it resets each one soon after
// the answer to the handshake, and counts that.
func resetConnections(t *testing.T, target string, on *atomic.Bool, resets *atomic.Int64) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	pass := func(c net.Conn) {
		defer c.Close()
		s, err := net.Dial("tcp", target)
		if err != nil {
			return
		}
		defer s.Close()
		go io.Copy(s, c)
		if on.Load() {
			answer := make([]byte, 4096)
			n, _ := s.Read(answer)
			c.Write(answer[:n])
			time.Sleep(rand.N(150 * time.Microsecond))
			c.(*net.TCPConn).SetLinger(0)
			resets.Add(1)
			return
		}
		io.Copy(c, s)
	}
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go pass(c)
		}
	}()
	return l.Addr().String()
}

// Each connection breaks when the library is about to send the credentials.
func TestServerWithAuthSurvivesBrokenConnections(t *testing.T) {
	srv := stores.ZooKeeper(t)
	var on atomic.Bool
	var resets atomic.Int64
	b := open(t, Options{Servers: resetConnections(t, srv.Addr, &on, &resets), Auth: "digest:u:p", SessionTimeout: time.Minute})
	a := take(t, b, "m", "x", longLease)
	on.Store(true)
	for _, l := range b.store.slots {
		l.session.mu.Lock()
		l.session.netConn.Close()
		l.session.mu.Unlock()
	}
	await(t, "enough connections were reset", func() bool { return resets.Load() > 20 })
	on.Store(false)
	for _, l := range b.store.slots {
		await(t, "the session is connected", func() bool { return isConnected(l.session) })
	}
	if o := ownerAgain(t, b, "m"); o.Token != a.Token {
		t.Errorf("OWNER: %+v; want the tenure %+v", o, a)
	}
	must(t, b.Close())
}

// The server gives up a connection on which nothing arrives, so heartbeats come more often.
func TestIdleConnectionsStay(t *testing.T) {
	srv := stores.ZooKeeper(t)
	b := open(t, Options{Servers: srv.Addr, Options: proxy.Options{Timeout: 500 * time.Millisecond}})
	var last [sessions]net.Conn
	opened := -sessions
	for begun := time.Now(); time.Since(begun) < 6*time.Second; time.Sleep(10 * time.Millisecond) {
		for i, l := range b.store.slots {
			l.session.mu.Lock()
			if c := l.session.netConn; c != last[i] {
				last[i] = c
				opened++
			}
			l.session.mu.Unlock()
		}
	}
	if opened > 3*sessions { // each stall of the machine may break all of them
		t.Errorf("%d connections were opened in 6 s", opened)
	}
}
