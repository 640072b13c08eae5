package zookeeper

import (
	"fmt"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// A server that only watches a mutex must not take a renewed lease for one that has expired.
func TestReleaseOfARenewedTenureElsewhereIsAnnounced(t *testing.T) {
	srv := stores.ZooKeeper(t)
	there := open(t, Options{Servers: srv.Addr})
	const ttl = 300 * time.Millisecond
	// renewed reports whether the tenure was longer than its first lease: a slow machine may end it.
	renewed := func(mutex string) bool {
		take(t, there, mutex, "a", ttl)
		for begun := time.Now(); time.Since(begun) < ttl+ttl/6; time.Sleep(ttl / 6) {
			if acquire(t, there, mutex, "a", ttl).Status != simba.StatusRenewed {
				return false
			}
		}
		return acquire(t, there, mutex, "a", longLease).Status == simba.StatusRenewed
	}
	tenures := 0 // a server that reads at the wrong times may read in time by chance
	for attempt := range 30 {
		mutex := fmt.Sprint("m", attempt)
		channel := simba.MutexChannel(mutex)
		heard := newBroker(channel)
		here := open(t, Options{Servers: srv.Addr, Options: proxy.Options{Notices: heard}})
		subscribe(t, here, channel)
		if !renewed(mutex) {
			continue
		}
		giveUp(t, there, mutex, "a")
		await(t, "the release is announced", func() bool { return heard.Count(channel, simba.ReleasedNotice("a")) == 1 })
		if e := lastEvent(here, mutex); e.Kind != simba.EventReleased {
			t.Errorf("the last event: %+v; want released", e)
		}
		if tenures++; tenures == 3 {
			return
		}
	}
	t.Fatal("the machine was too slow for three tenures")
}

// A server computes the end of another server's lease from the ensemble's clock, so not exactly.
func TestExpiryElsewhereIsNoRelease(t *testing.T) {
	srv := stores.ZooKeeper(t)
	there, here := open(t, Options{Servers: srv.Addr}), open(t, Options{Servers: srv.Addr})
	const ttl = 300 * time.Millisecond
	seen := 0
	for attempt := range 30 {
		mutex := fmt.Sprint("m", attempt)
		subscribe(t, here, simba.MutexChannel(mutex))
		take(t, there, mutex, "a", ttl)
		var e simba.Event
		await(t, "the lease has ended", func() bool {
			e = lastEvent(here, mutex)
			return e.Kind == 0 && lastEvent(there, mutex).Kind == simba.EventExpired || e.Kind > simba.EventAcquired
		})
		now := time.Now()
		low, _ := here.store.clock.Earliest(now)
		if e.Kind == 0 || here.store.clock.Latest(now)-low > 20 { // the machine is too slow
			continue
		}
		if e.Kind != simba.EventExpired {
			t.Errorf("event %+v; nobody has released the mutex", e)
		}
		if seen++; seen == 10 {
			return
		}
	}
	if seen < 3 {
		t.Fatal("the machine was too slow for three tenures")
	}
}
