package zookeeper

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// In these tests a tenure or a wait ends. At the same time another server, or another request, uses
// the same node.

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// longLease is the longest lease of the default session timeout. Another server can renew it.
const longLease = DefaultSessionTimeout / 2

func acquireAs(t *testing.T, b *Backend, r simba.AcquireRequest, want simba.Status) {
	t.Helper()
	r.TTL = longLease
	if out, _, err := b.Acquire(context.Background(), r); err != nil || out.Status != want {
		t.Fatalf("ACQUIRE of %s: %+v, %v; want status %v", r.Contender, out, err, want)
	}
}

// until waits for a condition, which it checks under b.mu.
func until(t *testing.T, b *Backend, what string, isLocked func() bool) {
	t.Helper()
	need.Await(t, what, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return isLocked()
	})
}

func TestTenureContinuedElsewhereIsNotEndedHere(t *testing.T) {
	there, here := twoServers(t)
	t.Run("when the connection that it was bound to closes", func(t *testing.T) { endSessionBoundElsewhere(t, there, here) })
	t.Run("when its contender leaves the queue", func(t *testing.T) {
		leaveQueueAsOwner(t, "kept", here, there, here)
		leaveQueueAsOwner(t, "foreign", here, there, there)
	})
	t.Run("an ended lease is released by its contender", func(t *testing.T) { releaseEndedLease(t, there, here) })
	t.Run("an ended lease is reconciled by its creator", func(t *testing.T) { reconcileEndedLease(t, there, here) })
}

func endSessionBoundElsewhere(t *testing.T, there, here *Backend) {
	ctx := context.Background()
	r := simba.AcquireRequest{Mutex: "bound", Contender: "x"}
	r.Session = 1
	acquireAs(t, there, r, simba.StatusAcquired)
	n := there.nodeAt(nodeKey{r.Mutex, r.Contender})
	until(t, there, "x's lease node is written", func() bool {
		if !n.writeAt.IsZero() {
			return false
		}
		n.watchAt = time.Time{} // so that the server there reads no later change
		return true
	})
	r.Session = 2
	acquireAs(t, here, r, simba.StatusRenewed)
	if ok, _, err := there.Release(ctx, simba.ReleaseRequest{Mutex: r.Mutex, Contender: r.Contender, Session: 1}); ok || err != nil {
		t.Errorf("RELEASE at the end of x's first session: %v, %v; want false", ok, err)
	}
	if o, _, err := here.Owner(ctx, r.Mutex); err != nil || o.Owner != "x" {
		t.Errorf("OWNER after the end of x's first session: %+v, %v; want x", o, err)
	}
}

func leaveQueueAsOwner(t *testing.T, mutex string, here, there, creator *Backend) {
	ctx := context.Background()
	o, x := simba.AcquireRequest{Mutex: mutex, Contender: "o"}, simba.AcquireRequest{Mutex: mutex, Contender: "x"}
	k := nodeKey{mutex, x.Contender}
	acquireAs(t, creator, o, simba.StatusAcquired)
	acquireAs(t, creator, x, simba.StatusQueued)
	n := creator.nodeAt(k)
	// Otherwise other servers would presume that x owns the mutex.
	until(t, creator, "x's lease node is written", func() bool { return n.writeAt.IsZero() })
	// The test does what RELEASE does at the server here, so it holds the lock of x's key.
	unlock, err := here.lockKey(ctx, k)
	must(t, err)
	s, err := here.current(ctx, mutex)
	must(t, err)
	if n, err := here.owned(ctx, s, k, 0); n != nil || err != nil {
		t.Fatalf("%s: owned for x returned node %+v, %v; want no node", mutex, n, err)
	}
	_, _, err = creator.Release(ctx, simba.ReleaseRequest{Mutex: mutex, Contender: o.Contender})
	must(t, err)
	acquireAs(t, there, x, simba.StatusAcquired)
	if err := here.leaveQueue(ctx, s, k); !errors.Is(err, errChanged) {
		t.Errorf("%s: leaveQueue of x after a grant by the other server: %v; want errChanged", mutex, err)
	}
	unlock()
	if ok, _, err := here.Release(ctx, simba.ReleaseRequest{Mutex: mutex, Contender: x.Contender}); !ok || err != nil {
		t.Errorf("%s: RELEASE of x: %v, %v; want true", mutex, ok, err)
	}
}

// releaseEndedLease makes a RELEASE of a tenure whose lease has ended, while its node still exists.
func releaseEndedLease(t *testing.T, creator, other *Backend) {
	ctx := context.Background()
	k := nodeKey{"ended", "x"}
	if _, _, err := creator.Acquire(ctx, simba.AcquireRequest{Mutex: k.mutex, Contender: k.contender, TTL: 200 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	unlock, err := creator.lockKey(ctx, k) // so that the creator does not delete the node
	must(t, err)
	defer unlock()
	for owner := k.contender; owner == k.contender; {
		tenure, _, err := other.Owner(ctx, k.mutex)
		must(t, err)
		owner = tenure.Owner
	}
	if ok, _, err := other.Release(ctx, simba.ReleaseRequest{Mutex: k.mutex, Contender: k.contender}); ok || err != nil {
		t.Errorf("RELEASE of x after its lease has ended: %v, %v; want false", ok, err)
	}
}

// reconcileEndedLease lets the creator reconcile the node of an ended tenure that the other server
// renewed last.
func reconcileEndedLease(t *testing.T, creator, other *Backend) {
	ctx := context.Background()
	k := nodeKey{"over", "x"}
	acquireAs(t, creator, simba.AcquireRequest{Mutex: k.mutex, Contender: k.contender}, simba.StatusAcquired)
	if out, err := other.Guard(ctx, simba.GuardRequest{Mutex: k.mutex, Contender: k.contender, TTL: longLease}); err != nil || out.Status != simba.StatusRenewed {
		t.Fatalf("GUARD at the other server: %+v, %v; want renewed", out, err)
	}
	unlock, err := creator.lockKey(ctx, k)
	must(t, err)
	defer unlock()
	n := creator.nodeAt(k)
	must(t, creator.reload(ctx, n))
	creator.mu.Lock()
	ended := *n // as known to a server by whose clock the lease has ended
	creator.mu.Unlock()
	ended.since = ended.since.Add(-time.Hour)
	must(t, creator.markOver(ctx, &ended))
	must(t, creator.reload(ctx, n))
	creator.mu.Lock()
	version := n.version
	creator.dropLocked(n)
	creator.mu.Unlock()
	creator.addOrphan(k, n.guid, version)
	must(t, creator.reconcile(ctx, n.s, k))
	names, err := n.s.children(ctx, k.mutex)
	if kept := creator.nodeAt(k); kept != nil || len(names) != 0 || err != nil {
		t.Errorf("after reconcile: nodeAt %+v, children %v, %v; want no node of the ended lease", kept, names, err)
	}
}

// sleepingWaiter is a simba.Waiter that is never woken.
type sleepingWaiter struct{}

func (sleepingWaiter) Wake() {}

// waitBehindO makes o the owner of a mutex and blocks x on it.
func waitBehindO(t *testing.T, b *Backend, mutex string) simba.Ticket {
	t.Helper()
	acquireAs(t, b, simba.AcquireRequest{Mutex: mutex, Contender: "o"}, simba.StatusAcquired)
	return waitFor(t, b, mutex)
}

// waitFor blocks x on a mutex that is not free.
func waitFor(t *testing.T, b *Backend, mutex string) simba.Ticket {
	t.Helper()
	out, ticket, err := b.Acquire(context.Background(), simba.AcquireRequest{Mutex: mutex, Contender: "x", TTL: longLease, Waiter: sleepingWaiter{}})
	if err != nil || out.Status != simba.StatusWaiting {
		t.Fatalf("ACQUIRE … WAIT of x: %+v, %v; want waiting", out, err)
	}
	return ticket
}

func TestWaitEndsWithTheOutcomeOfItsNode(t *testing.T) {
	srv := stores.ZooKeeper(t)
	link := stores.NewLink(t, srv.Addr)
	ctx := context.Background()
	b, err := Open(ctx, Options{Servers: link.Addr(), Notices: stubNotices{}})
	must(t, err)
	defer b.Close()
	t.Run("acquired, if the grant has begun", func(t *testing.T) {
		ticket := waitBehindO(t, b, "granted")
		n := b.nodeAt(nodeKey{"granted", "x"})
		link.Delay(50 * time.Millisecond)
		defer link.Heal()
		released := make(chan error, 1)
		go func() {
			_, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: "granted", Contender: "o"})
			released <- err
		}()
		until(t, b, "the grant to x has begun", func() bool { return n.granting })
		out, err := ticket.End(simba.EndTimeout)
		if err != nil || out.Status != simba.StatusAcquired || out.Token != n.token {
			t.Errorf("the end of x's wait: %+v, %v; want acquired with the token of its node", out, err)
		}
		must(t, <-released)
		if o, _, err := b.Owner(ctx, "granted"); err != nil || o.Owner != "x" {
			t.Errorf("OWNER after the end of x's wait: %+v, %v; want x", o, err)
		}
	})
	t.Run("withdrawn, while a rejoin waits for the key's lock", func(t *testing.T) {
		k := nodeKey{"withdrawn", "x"}
		ticket := b.waiters.Enter(simba.AcquireRequest{Mutex: k.mutex, Contender: k.contender, TTL: longLease, Waiter: sleepingWaiter{}})
		unlock, err := b.lockKey(ctx, k) // as x's request does
		must(t, err)
		rejoined := make(chan struct{})
		go func() {
			defer close(rejoined)
			b.rejoinOne(ticket)
		}()
		until(t, b, "rejoinOne waits for the lock of x's key", func() bool { return b.keyLocks[k].users == 2 })
		if !ticket.Withdraw() {
			t.Error("Withdraw returned false: x was granted the mutex before")
		}
		unlock()
		<-rejoined
		if events := b.eventLog.Find(simba.HistoryRequest{Mutex: k.mutex}); len(events) != 0 {
			t.Errorf("events after the withdrawal: %+v; want none", events)
		}
	})
	handedOff := func(n *node) { // the state of a handoff before the waiter is woken
		must(t, b.renew(ctx, n, longLease, 0, ""))
		b.setUnacknowledged(n, true)
	}
	t.Run("handed off, if the connection closes during the grant", func(t *testing.T) {
		n := disconnectDuringRejoin(t, b, link, "granting", func(*node) {})
		until(t, b, "the mutex is handed off", func() bool { return n.forgotten })
	})
	t.Run("handed off, if the connection closes during a second grant", func(t *testing.T) {
		n := disconnectDuringRejoin(t, b, link, "again", handedOff)
		until(t, b, "the mutex is handed off", func() bool { return n.forgotten })
	})
	t.Run("kept, if an earlier wait has returned the grant", func(t *testing.T) {
		n := disconnectDuringRejoin(t, b, link, "earlier", func(n *node) {
			handedOff(n)
			earlier := &proxy.Ticket{Request: simba.AcquireRequest{Mutex: n.mutex, Contender: n.contender}}
			if out, err := b.Granted(earlier, proxy.Grant{Token: n.token}); err != nil || out.Status != simba.StatusAcquired {
				t.Errorf("Granted for the earlier wait: %+v, %v; want acquired", out, err)
			}
		})
		if o, _, err := b.Owner(ctx, "earlier"); err != nil || o.Owner != "x" || o.Token != n.token {
			t.Errorf("OWNER after x's connection has closed: %+v, %v; want x with the token of its node", o, err)
		}
	})
	t.Run("kept, if another connection has renewed the lease", func(t *testing.T) {
		ticket := waitBehindO(t, b, "other's")
		n := b.nodeAt(nodeKey{"other's", "x"})
		if ok, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: "other's", Contender: "o"}); !ok || err != nil {
			t.Fatalf("RELEASE of o: %v, %v; want true", ok, err)
		}
		until(t, b, "the mutex is granted to x", func() bool { return !b.waitsLocked(n.key()) })
		out, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: "other's", Contender: "x", TTL: longLease, Waiter: sleepingWaiter{}})
		if err != nil || out.Status != simba.StatusRenewed {
			t.Fatalf("ACQUIRE … WAIT of x by another connection: %+v, %v; want renewed", out, err)
		}
		_, err = ticket.End(simba.EndGone)
		must(t, err)
		if o, _, err := b.Owner(ctx, "other's"); err != nil || o.Token != out.Token {
			t.Errorf("OWNER after x's first connection has closed: %+v, %v; want x with the same token", o, err)
		}
	})
	t.Run("timeout, if another connection has released the mutex", func(t *testing.T) {
		ticket := waitBehindO(t, b, "released")
		n := b.nodeAt(nodeKey{"released", "x"})
		b.mu.Lock()
		n.made = n.made.Add(-2 * longLease) // x has waited for longer than its lease
		b.mu.Unlock()
		giveUp(t, b, "released", "o")
		until(t, b, "the mutex is granted to x", func() bool { return !b.waitsLocked(n.key()) })
		giveUp(t, b, "released", "x")
		if out, err := ticket.End(simba.EndWoken); err != nil || out.Status != simba.StatusTimeout {
			t.Errorf("the end of x's wait, after its tenure was released: %+v, %v; want timeout", out, err)
		}
	})
	t.Run("left, if End returned an error", func(t *testing.T) {
		b, err := Open(ctx, Options{Servers: srv.Addr, Notices: stubNotices{}, Timeout: 2 * time.Second})
		must(t, err)
		defer b.Close()
		ticket := waitBehindO(t, b, "nobody's")
		// The lock is held, as by another request of x, so End cannot delete the node in time.
		unlock, err := b.lockKey(ctx, nodeKey{"nobody's", "x"})
		must(t, err)
		_, err = ticket.End(simba.EndTimeout)
		var u *simba.UnavailableError
		if !errors.As(err, &u) {
			t.Errorf("the end of x's wait: %v; want an UnavailableError", err)
		}
		unlock()
		// Repeat RELEASE: a late answer may have made the session cut its connection.
		for end := time.Now().Add(need.Hang); ; {
			if _, _, err = b.Release(ctx, simba.ReleaseRequest{Mutex: "nobody's", Contender: "o"}); err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("RELEASE of o still fails: %v", err)
			}
		}
		for end := time.Now().Add(need.Hang); ; {
			out, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: "nobody's", Contender: "y", TTL: longLease, NoQueue: true})
			must(t, err)
			if out.Status == simba.StatusAcquired {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("ACQUIRE of y after %v: %+v; want acquired", need.Hang, out)
			}
		}
	})
}

// disconnectDuringRejoin closes x's connection while the server queues x again. x's node is then
// the first. It returns that node.
func disconnectDuringRejoin(t *testing.T, b *Backend, link *stores.Link, mutex string, before func(*node)) *node {
	t.Helper()
	ctx := context.Background()
	ticket := waitBehindO(t, b, mutex)
	n := b.nodeAt(nodeKey{mutex, "x"})
	b.mu.Lock()
	n.granting = true // so that only rejoinOne grants x the mutex
	b.mu.Unlock()
	if ok, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: mutex, Contender: "o"}); !ok || err != nil {
		t.Fatalf("RELEASE of o: %v, %v; want true", ok, err)
	}
	before(n)
	link.Delay(50 * time.Millisecond)
	defer link.Heal()
	rejoined := make(chan struct{})
	go func() {
		defer close(rejoined)
		b.rejoinOne(ticket.(*proxy.Ticket))
	}()
	until(t, b, "rejoinOne writes x's lease node", func() bool { return n.writing })
	_, err := ticket.End(simba.EndGone)
	must(t, err)
	<-rejoined
	return n
}

func TestHandoffOvertakenByARenewalChangesNothing(t *testing.T) {
	b, _ := twoServers(t)
	ctx := context.Background()
	ticket := waitBehindO(t, b, "m")
	o, x := b.nodeAt(nodeKey{"m", "o"}), b.nodeAt(nodeKey{"m", "x"})
	until(t, b, "the lease nodes of o and x are written", func() bool { return o.writeAt.IsZero() && x.writeAt.IsZero() })
	unlock, err := b.lockKey(ctx, o.key()) // as the RELEASE of o does
	must(t, err)
	b.mu.Lock()
	x.granting = true
	h := &nextOwner{x, x.recordLocked(time.Now()), x.version}
	h.record.Kind, h.record.Server, h.record.Acquired = kindOwner, b.id, 0
	version := o.version
	b.mu.Unlock()
	start := time.Now()
	stat, _, err := o.s.delete(ctx, o, version, h, false)
	must(t, err)
	r := simba.AcquireRequest{Mutex: "m", Contender: "x", TTL: time.Hour}
	reply, _, err := b.Acquire(ctx, r)
	if err != nil || reply.Status != simba.StatusAcquired {
		t.Fatalf("ACQUIRE of x: %+v, %v; want acquired", reply, err)
	}
	b.beginNext(x, start, stat) // after x has renewed
	unlock()
	_, err = ticket.End(simba.EndGone)
	must(t, err)
	now, _, err := b.Owner(ctx, "m")
	if err != nil || now.Token != reply.Token || now.TTLAt-now.AcquiredAt != r.TTL.Milliseconds() {
		t.Errorf("x's reply: %+v; OWNER after that: %+v, %v; want the same token, and the TTL of x", reply, now, err)
	}
}

func TestHandoffSkipsNoNodeThatMayStillExist(t *testing.T) {
	b, _ := twoServers(t)
	ctx := context.Background()
	acquireAs(t, b, simba.AcquireRequest{Mutex: "m", Contender: "o"}, simba.StatusAcquired)
	acquireAs(t, b, simba.AcquireRequest{Mutex: "m", Contender: "p"}, simba.StatusQueued)
	waitFor(t, b, "m")
	p := b.nodeAt(nodeKey{"m", "p"})
	unlock, err := b.lockKey(ctx, p.key()) // so that the server does not delete p's latch node
	must(t, err)
	must(t, p.s.remove(ctx, p.s.lease(p.guid)))
	if err := b.reload(ctx, p); !errors.Is(err, zk.ErrNoNode) {
		t.Fatalf("reload of p, whose lease node is gone: %v; want ErrNoNode", err)
	}
	b.mu.Lock()
	m := b.mutexes["m"]
	next := b.nextLocked(m, m.nodes["o"])
	b.mu.Unlock()
	if next != nil {
		t.Errorf("nextLocked returned the node of %s; want nil, since p's latch node is ahead", next.contender)
	}
	unlock()
	if ok, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "o"}); !ok || err != nil {
		t.Fatalf("RELEASE of o: %v, %v; want true", ok, err)
	}
	x := b.nodeAt(nodeKey{"m", "x"})
	until(t, b, "x owns the mutex when p's latch node is gone", func() bool { return x.kind == kindOwner })
}
