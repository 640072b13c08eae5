package clienttest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
)

// The tests in this file cover renewals without a reply.

// hookHandler is a log handler that calls f with each message.
type hookHandler struct {
	slog.Handler
	f func(msg string)
}

func (h hookHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h hookHandler) Handle(_ context.Context, r slog.Record) error {
	h.f(r.Message)
	return nil
}

// While the logger and hooks of one lease hang, the others end in time, and are renewed.
func TestHangingLoggersAndHooksExtendNoOwnership(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		block := make(chan struct{})
		g := w.clientWith(client.Options{
			Logger: slog.New(hookHandler{slog.DiscardHandler, func(string) { <-block }}),
			Hook: func(_ context.Context, e client.Event) {
				if e.Kind == "Renewed" || e.Kind == "Lost" || e.Kind == "Asked" && e.Mutex == "job1" && e.Token != 0 {
					<-block
				}
			},
		})
		var all []*client.Lock
		for i := range 3 {
			l, err := g.Lock(bg, fmt.Sprint("job", i))
			must(t, err)
			all = append(all, l)
		}
		time.Sleep(9 * time.Second) // all have sent a renewal, or hang in Asked
		if o, err := g.Owner(bg, "job2"); err != nil || time.Until(o.TransitionAt) < 10*time.Second {
			t.Errorf("Owner returns %+v, %v, want a renewed lease", o, err)
		}
		g.silence()
		time.Sleep(13 * time.Second)
		for i, l := range all {
			if context.Cause(l.Context()) == nil {
				t.Errorf("the ownership of job%d has not ended", i)
			}
		}
		close(block)
		g.heal()
		time.Sleep(time.Second)
	})
}

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

// deadConnections runs a test with dead connections in the client's pool. die makes all present
// connections dead.
func deadConnections(t *testing.T, test func(t *testing.T, w *world, g *testClient, die func())) {
	for name, fault := range map[string]func(*testClient){
		"replies 7 s late": func(g *testClient) { g.delayReplies(7 * time.Second) },
		"no replies":       func(g *testClient) { g.freeze() },
	} {
		for _, dead := range []int{3, 7, 8, 20} {
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

func TestDeadPooledConnectionsLoseNoLease(t *testing.T) {
	deadConnections(t, func(t *testing.T, w *world, g *testClient, die func()) {
		l := w.lock(g)
		time.Sleep(7 * time.Second)
		for range 5 {
			die()
			neverShortens(t, w, 40*time.Second, l.Owner)
			must(t, l.Context().Err())
		}
		must(t, l.Unlock(bg))
	})
}

func TestDeadPooledConnectionsLoseNoLeaseThatIsRenewedByHand(t *testing.T) {
	deadConnections(t, func(t *testing.T, w *world, g *testClient, die func()) {
		l, err := g.Lock(bg, "job", client.WithTTL(time.Minute), client.WithoutRenewal())
		must(t, err)
		time.Sleep(2 * time.Second)
		die()
		for range 3 {
			for l.Renew(bg) != nil && l.Context().Err() == nil { // until a live connection renews the lease
			}
			neverShortens(t, w, 10*time.Second, l.Owner)
		}
		must(t, l.Context().Err())
		must(t, l.Unlock(bg))
	})
}
