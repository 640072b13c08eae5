package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

func TestCrashOfSyncingRedisLosesNothingAcknowledged(t *testing.T) {
	s := stores.Redis(t, "--appendfsync", "always", "--maxmemory-policy", "noeviction")
	e := conformance.Engine{Name: "redis", Shared: true, Timeout: suiteTimeout, Open: opener("redis://" + s.Addr)}
	conformance.Crash(t, e, 8, s.Kill, s.Start)
}

// The server uses its estimate of Redis' clock only for a script's deadline. If the estimate is
// behind, the script does nothing. Then the server corrects the estimate and sends the script
// again. The windows of a lease follow Redis' own clock.
func TestWrongClockEstimateMovesNoLease(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	p := b.up.pipeline(b.up.client)
	for i, wrong := range []time.Duration{time.Hour, -time.Hour} {
		m := fmt.Sprint("m", i)
		misestimate := func() { p.clock.Learn(time.Now().Add(wrong).UnixMilli(), time.Now(), time.Now()) }
		const ttl = 10 * time.Minute
		keeps := func(contender string, since time.Time) {
			t.Helper()
			misestimate()
			o := owner(t, b, m)
			if least := ttl - time.Since(since) - 10*time.Millisecond; o.Owner != contender || o.TTL < least || o.TTL > ttl {
				t.Errorf("clock estimate off by %v: OWNER %+v; want %s with at least %v left", wrong, o, contender, least)
			}
		}
		misestimate()
		sent := time.Now()
		a, _ := acquire(t, b, m, "a", ttl, nil)
		if a.Status != simba.StatusAcquired {
			t.Fatalf("ACQUIRE: %+v; want acquired", a)
		}
		keeps("a", sent)
		misestimate()
		sent = time.Now()
		if o, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: m, Contender: "a", TTL: ttl}); err != nil || o.Status != simba.StatusRenewed || o.Token != a.Token {
			t.Errorf("GUARD with a wrong clock estimate: %+v, %v; want renewed", o, err)
		}
		keeps("a", sent)
		w := newWaiter()
		misestimate()
		_, ticket := acquire(t, b, m, "b", ttl, w)
		misestimate()
		sent = time.Now()
		if !release(t, b, m, "a") {
			t.Error("RELEASE of a returned 0, want 1")
		}
		w.await(t)
		if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusAcquired {
			t.Errorf("the waiter: %+v, %v; want acquired", o, err)
		}
		keeps("b", sent)
	}
}
