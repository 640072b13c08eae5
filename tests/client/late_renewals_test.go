package clienttest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/registry"
)

// pooled makes the client's pool have at least n connections.
func (g *testClient) pooled(t *testing.T, n int) {
	t.Helper()
	var all []*redis.Conn
	for range n {
		c := g.rdb.Conn()
		must(t, c.Ping(bg).Err())
		all = append(all, c)
	}
	for _, c := range all {
		must(t, c.Close())
	}
}

// deadConnections runs a test with 3 to 7 dead connections in the client's pool. die makes all
// present connections dead.
func deadConnections(t *testing.T, test func(t *testing.T, w *world, g *testClient, die func())) {
	for name, fault := range map[string]func(*testClient){
		"replies 7 s late": func(g *testClient) { g.delayReplies(7 * time.Second) },
		"no replies":       func(g *testClient) { g.freeze() },
	} {
		for dead := 3; dead <= 7; dead++ {
			t.Run(fmt.Sprint(name, " on ", dead), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					g := w.client()
					test(t, w, g, func() { g.pooled(t, dead); fault(g) })
				})
			})
		}
	}
}

// neverShortens checks for d that the known end of the lease never moves back.
func neverShortens(t *testing.T, w *world, d time.Duration, owner func() client.Owner) {
	t.Helper()
	var last client.Owner
	for end := w.elapsed() + d; w.elapsed() < end; time.Sleep(100 * time.Millisecond) {
		o := owner()
		if o.Token != 1 || o.TransitionAt.Before(last.TransitionAt) {
			t.Fatalf("at %v the lease is %+v; it was %+v, which ends later", w.elapsed(), o, last)
		}
		last = o
	}
}

func TestLateRepliesShortenNoLease(t *testing.T) {
	deadConnections(t, func(t *testing.T, w *world, g *testClient, die func()) {
		k := w.contendOver(g, "k")
		synctest.Wait()
		for range 5 {
			die()
			neverShortens(t, w, 40*time.Second, k.Contender.Owner)
		}
		if got := k.callbacks(); got != "[acquired 1]" || len(w.tenures("job")) != 1 {
			t.Errorf("the callbacks are %s, the tenures %+v, want one tenure", got, w.tenures("job"))
		}
	})
}

func TestLateRepliesShortenNoLock(t *testing.T) {
	deadConnections(t, func(t *testing.T, w *world, g *testClient, die func()) {
		l := w.lock(g)
		time.Sleep(7 * time.Second)
		die()
		neverShortens(t, w, 3*time.Minute, l.Owner)
		must(t, l.Context().Err())
		must(t, l.Unlock(bg))
	})
}

func TestLateRepliesShortenNoLeaseOfARegistry(t *testing.T) {
	deadConnections(t, func(t *testing.T, w *world, g *testClient, die func()) {
		a := g.registry(t, registry.Config{ID: "a"})
		l, h := obtain(t, a, "k"), a.NewHolder()
		must(t, l.Lock(bg, h))
		time.Sleep(2 * time.Second)
		die()
		for l.Lock(bg, h) != nil { // until a live connection renews the lease
		}
		own := l.Context(h)
		time.Sleep(7500 * time.Millisecond) // late replies have arrived
		must(t, l.Lock(bg, h))
		for range 3 {
			must(t, own.Err())
			must(t, l.Unlock(bg, h))
		}
		if len(w.tenures("spring:k")) != 1 {
			t.Errorf("the tenures are %+v, want one", w.tenures("spring:k"))
		}
	})
}
