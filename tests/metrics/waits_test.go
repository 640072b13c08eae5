package metrics

import (
	"sync"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// The Go client, lock and elect wait by SIMBA.NEXT, so the server counts their waits and handoffs.
func TestWaitsOfTheClientAreCounted(t *testing.T) {
	const waiters = 3
	s := start(t)
	send(t, s, "SIMBA.ACQUIRE", "m", "owner", hour)
	var all sync.WaitGroup
	for range waiters {
		all.Go(func() {
			simbatest.Output(t, simbatest.Binary(t), "lock", "--url", "redis://"+s.Addr, "m", "--", "true")
		})
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
}
