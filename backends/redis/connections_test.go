package redis

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

func TestDroppedConnectionFailsNoRequest(t *testing.T) {
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
			b.up.connections.dropBefore("", time.Now())
			for range 20 {
				if err := c.Ping(t.Context()).Err(); err != nil {
					t.Errorf("PING with %d stale connections in the pool: %v", had, err)
				}
			}
			if now := c.PoolStats(); now.StaleConns == 0 {
				t.Errorf("the pool kept all stale connections: %+v", now)
			}
		})
	}
}

func TestAYoungerConnectionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newConnections()
		dial := func() *connection {
			near, far := net.Pipe()
			t.Cleanup(func() { _, _ = near.Close(), far.Close() })
			defer time.Sleep(time.Second)
			return all.add(near, "a").(*connection)
		}
		old, failed, young := dial(), time.Now(), dial()
		all.dropBefore("a", failed)
		_, oldErr := old.SyscallConn()
		_, youngErr := young.SyscallConn()
		if oldErr == nil || youngErr != nil {
			t.Errorf("after dropBefore, the test of the older connection: %v, of the younger one: %v; want an error for the older one only", oldErr, youngErr)
		}
	})
}

func TestRefusedConnectionIsMisconfiguredAndNamesMaxclients(t *testing.T) {
	for name, login := range map[string][]string{"no login": nil, "login": {"--requirepass", "word"}} {
		t.Run(name, func(t *testing.T) {
			s := stores.Redis(t, login...)
			url, password := "redis://"+s.Addr, ""
			if login != nil {
				url, password = "redis://:word@"+s.Addr, "word"
			}
			c := redis.NewClient(&redis.Options{Addr: s.Addr, Password: password})
			defer c.Close()
			b := serve(t, url, noNotices{})
			acquire(t, b, "m", "a", time.Minute, nil)
			waiter, ticket := waits(t, b, "m", "waiter")
			must(t, c.ConfigSet(t.Context(), "maxclients", "1").Err())
			cutOff(t, c)
			for _, r := range requests {
				if r.name != "RELEASE" && r.name != "BREAK" {
					mustBeMisconfigured(t, r.name, r.run(t.Context(), b), "raise maxclients")
				}
			}
			mentions(t, refused(t, url), "raise maxclients")
			// A waiter waits on until there is a connection.
			must(t, c.ConfigSet(t.Context(), "maxclients", "1000").Err())
			until(t, "the owner has released the mutex", func() bool {
				ok, _, err := b.Release(t.Context(), simba.ReleaseRequest{Mutex: "m", Contender: "a"})
				return err == nil && ok
			})
			granted(t, waiter, ticket)
		})
	}
}
