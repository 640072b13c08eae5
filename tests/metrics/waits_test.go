package metrics

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// The Go client, lock and elect wait by SIMBA.NEXT, so the server counts their waits and handoffs.
func TestWaitsOfTheClientAndTheWrapperAreCounted(t *testing.T) {
	const waiters = 3
	for name, use := range map[string]func(t *testing.T, s *server){
		"client": func(t *testing.T, s *server) {
			rdb := redis.NewClient(&redis.Options{Addr: s.Addr, ContextTimeoutEnabled: true})
			defer rdb.Close()
			c, err := client.New(rdb, client.Options{})
			simbatest.Must(t, err)
			defer c.Close()
			simbatest.Must(t, c.Do(t.Context(), "m", func(context.Context) error { return nil }))
		},
		"lock": func(t *testing.T, s *server) {
			simbatest.Output(t, simbatest.Binary(t), "lock", "--url", "redis://"+s.Addr, "m", "--", "true")
		},
		"elect": func(t *testing.T, s *server) {
			simbatest.Output(t, simbatest.Binary(t), "elect", "--url", "redis://"+s.Addr, "m", "--", "true")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			send(t, s, "SIMBA.ACQUIRE", "m", "owner", 3_600_000)
			var all sync.WaitGroup
			for range waiters {
				all.Go(func() { use(t, s) })
			}
			simbatest.Await(t, "all wait", func() bool { return value(t, s.scrape(t), "simba_waiters", `kind="blocked"`) == waiters })
			if n := value(t, s.scrape(t), "simba_acquire_wait_seconds"); n != 0 {
				t.Errorf("%v waits are counted before their ends", n)
			}
			send(t, s, "SIMBA.RELEASE", "m", "owner")
			all.Wait()
			for _, metric := range []string{"simba_acquire_wait_seconds", "simba_handoffs_total"} {
				if n := value(t, s.scrape(t), metric); n != waiters {
					t.Errorf("%s is %v, want %d", metric, n, waiters)
				}
			}
		})
	}
}
