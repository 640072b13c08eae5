package zookeeper

import (
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
	channel := simba.MutexChannel("m")
	heard := newBroker(channel)
	here := open(t, Options{Servers: srv.Addr, Options: proxy.Options{Notices: heard}})
	subscribe(t, here, channel)
	const ttl = 300 * time.Millisecond
	take(t, there, "m", "a", ttl)
	for begun := time.Now(); time.Since(begun) < ttl+ttl/6; time.Sleep(ttl / 6) {
		if out := acquire(t, there, "m", "a", ttl); out.Status != simba.StatusRenewed { // the machine was too slow
			begun = time.Now()
		}
	}
	renew(t, there, "m", "a", longLease)
	giveUp(t, there, "m", "a")
	await(t, "the release is announced", func() bool { return heard.Count(channel, simba.ReleasedNotice("a")) == 1 })
	if e := lastEvent(here, "m"); e.Kind != simba.EventReleased {
		t.Errorf("the last event: %+v; want released", e)
	}
}
