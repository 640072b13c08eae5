package redis

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

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
			waiter := newWaiter()
			_, ticket := acquire(t, b, "m", "waiter", time.Minute, waiter)
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
			waiter.await(t)
			if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusAcquired {
				t.Errorf("the waiter gets %+v, %v; want acquired", o, err)
			}
		})
	}
}
