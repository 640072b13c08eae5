package redis

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestClosedConnectionFailsNoRequest(t *testing.T) {
	s, secure, files := redisTLS(t)
	for name, url := range map[string]string{"plain": "redis://" + s.Addr, "TLS": "rediss://" + secure + files} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, url, noNotices{})
			c := b.up.client
			var all sync.WaitGroup
			for range 10 { // so that the pool has many connections
				all.Go(func() { _ = c.Ping(t.Context()).Err() })
			}
			all.Wait()
			had := c.PoolStats().TotalConns
			b.up.connections.closeBefore("", time.Now())
			for range 20 {
				if err := c.Ping(t.Context()).Err(); err != nil {
					t.Errorf("PING with %d closed connections in the pool: %v", had, err)
				}
			}
			until(t, "the subscriber is back", func() bool { ok, _ := b.subs.reachable("m"); return ok })
		})
	}
}

func TestAYoungerConnectionStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newConnections()
		dial := func() net.Conn {
			near, far := net.Pipe()
			t.Cleanup(func() { _, _ = near.Close(), far.Close() })
			defer time.Sleep(time.Second)
			return all.add(near, "a")
		}
		old, failed, young := dial(), time.Now(), dial()
		all.closeBefore("a", failed)
		if old.SetDeadline(time.Now()) == nil || young.SetDeadline(time.Now()) != nil {
			t.Errorf("closeBefore leaves the older connection open, or closes the younger one")
		}
	})
}
