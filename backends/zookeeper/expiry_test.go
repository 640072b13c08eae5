package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

func openHere(t *testing.T, servers string) *Backend {
	t.Helper()
	return open(t, Options{Servers: servers, Notices: stubNotices{}})
}

func TestMutexReportedFreeGoesToTheNextRequest(t *testing.T) {
	srv := stores.ZooKeeper(t)
	b := openHere(t, srv.Addr)
	for i := range 10 {
		if acquireBesideTheOldNode(t, b, fmt.Sprint("m", i)) {
			return
		}
	}
	t.Fatal("in 10 attempts, the old owner's node was always gone before b's ACQUIRE")
}

// acquireBesideTheOldNode lets b acquire while the node of a, whose lease has ended, still exists.
// It returns false if a's node was deleted too early, as on a slow machine.
func acquireBesideTheOldNode(t *testing.T, b *Backend, mutex string) bool {
	t.Helper()
	ctx := context.Background()
	if _, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: mutex, Contender: "a", TTL: 200 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	unlock, err := b.lockKey(ctx, nodeKey{mutex, "a"}) // so that a's node stays
	must(t, err)
	for owner := "a"; owner == "a"; {
		tenure, _, err := b.Owner(ctx, mutex)
		must(t, err)
		owner = tenure.Owner
	}
	acquired, answered := make(chan simba.Outcome, 1), make(chan struct{})
	go func() {
		defer close(acquired)
		defer close(answered)
		out, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: mutex, Contender: "b", TTL: time.Minute})
		if err != nil {
			t.Error(err)
			return
		}
		acquired <- out
	}()
	beside := false
	for over := false; !beside && !over; {
		select {
		case <-answered:
			over = true
		default:
		}
		s, err := b.current(ctx, mutex)
		must(t, err)
		names, err := s.children(ctx, mutex)
		must(t, err)
		beside = len(names) >= 2
	}
	unlock()
	if out := <-acquired; out.Status != simba.StatusAcquired {
		t.Errorf("ACQUIRE of b: %+v; want acquired", out)
	}
	return beside
}

func twoServers(t *testing.T) (one, other *Backend) {
	t.Helper()
	srv := stores.ZooKeeper(t)
	return openHere(t, srv.Addr), openHere(t, srv.Addr)
}

func TestNewOwnerIsNotRefused(t *testing.T) {
	there, here := twoServers(t)
	ctx := context.Background()
	r := simba.AcquireRequest{Mutex: "m", Contender: "a", TTL: time.Minute, NoQueue: true}
	if _, _, err := there.Acquire(ctx, r); err != nil {
		t.Fatal(err)
	}
	s, err := here.current(ctx, "m")
	must(t, err)
	// The first node when the request listed the nodes. It is gone by now, and a owns the mutex.
	before := string(newGUID("o", s.tag)) + "-latch-0000000000"
	if out, done, err := here.refuse(ctx, s, r, []string{protected + before}, ""); done || err != nil {
		t.Errorf("refuse for the owner a: %+v, done %v, %v; want not done", out, done, err)
	}
}

func TestNodeDeletedDuringAReadIsNoLeaderLatch(t *testing.T) {
	srv := stores.ZooKeeper(t)
	b := openHere(t, srv.Addr)
	ctx := context.Background()
	k := nodeKey{"m", "a"}
	if _, _, err := b.Acquire(ctx, simba.AcquireRequest{Mutex: k.mutex, Contender: k.contender, TTL: time.Second}); err != nil {
		t.Fatal(err)
	}
	own := b.nodeAt(k)
	latch, err := own.s.get(ctx, own.s.latch(k.mutex, own.child))
	must(t, err)
	if _, _, err := b.Release(ctx, simba.ReleaseRequest{Mutex: k.mutex, Contender: k.contender}); err != nil {
		t.Fatal(err)
	}
	n := &node{s: own.s, mutex: k.mutex, contender: k.contender, guid: own.guid, child: own.child, foreign: true}
	if n, err := b.leaseless(ctx, n, &latch.stat); n != nil || err != nil {
		t.Errorf("leaseless for a deleted node: %+v, %v; want nil", n, err)
	}
}

func TestLeaseReportedOverIsNotRenewed(t *testing.T) {
	creator, other := twoServers(t)
	ctx, cancel := context.WithTimeout(context.Background(), need.Hang)
	defer cancel()
	for teller, b := range map[string]*Backend{"its-creator": creator, "another-server": other} {
		k := nodeKey{teller, "a"}
		if _, _, err := creator.Acquire(ctx, simba.AcquireRequest{Mutex: k.mutex, Contender: k.contender, TTL: 200 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		n := creator.nodeAt(k)
		unlock, err := creator.lockKey(ctx, k) // so that the creator does not delete the node
		must(t, err)
		for owner := "a"; owner == "a"; {
			tenure, _, err := b.Owner(ctx, k.mutex)
			must(t, err)
			owner = tenure.Owner
		}
		creator.mu.Lock()
		rec, version := n.recordLocked(time.Now()), n.version
		creator.mu.Unlock()
		if _, err := n.s.change(ctx, n, rec, version); !errors.Is(err, zk.ErrBadVersion) {
			t.Errorf("end reported by %s: change at the old version: %v; want ErrBadVersion", teller, err)
		}
		if err := creator.renew(ctx, n, time.Minute, 0, ""); !errors.Is(err, errChanged) {
			t.Errorf("end reported by %s: renew: %v; want errChanged", teller, err)
		}
		unlock()
		if out, err := creator.Guard(ctx, simba.GuardRequest{Mutex: k.mutex, Contender: k.contender, TTL: time.Minute}); err != nil || out.Status != simba.StatusLost {
			t.Errorf("end reported by %s: GUARD: %+v, %v; want lost", teller, out, err)
		}
	}
}

// Another server has reported the end of a lease by the ensemble's clock. The server that counts
// the windows by its own clock may still renew the lease. Either clock may be right, since the
// ensemble's clock may have stepped.
func TestCountingServerMayRenewALeaseEndedByAnotherClock(t *testing.T) {
	srv := stores.ZooKeeper(t)
	b := openHere(t, srv.Addr)
	ctx := context.Background()
	k := nodeKey{"m", "a"}
	r := simba.AcquireRequest{Mutex: k.mutex, Contender: k.contender, TTL: time.Minute}
	a, _, err := b.Acquire(ctx, r)
	must(t, err)
	n := b.nodeAt(k)
	b.mu.Lock()
	wrong := *n // as known to a server by whose clock the lease has ended
	b.mu.Unlock()
	wrong.since = wrong.since.Add(-time.Minute)
	for errors.Is(err, zk.ErrBadVersion) || err == nil && !wrong.over {
		b.mu.Lock()
		wrong.version = n.version
		b.mu.Unlock()
		if err = b.markOver(ctx, &wrong); err == nil {
			wrong.over = true
		}
	}
	must(t, err)
	tenure, _, err := b.Owner(ctx, k.mutex)
	if err != nil || tenure.Owner != "" {
		t.Errorf("OWNER after the end was reported: %+v, %v; want no owner", tenure, err)
	}
	if out, _, err := b.Acquire(ctx, r); err != nil || out.Status != simba.StatusRenewed || out.Token != a.Token || out.TTL < r.TTL/2 {
		t.Errorf("ACQUIRE of the earlier owner: %+v, %v; want renewed with the same token", out, err)
	}
	tenure, _, err = b.Owner(ctx, k.mutex)
	if err != nil || tenure.Token != a.Token {
		t.Errorf("OWNER after the renewal: %+v, %v; want the same token", tenure, err)
	}
}
