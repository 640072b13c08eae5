package clienttest

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/registry"
	"github.com/simba-resp/simba-resp/client/worker"
)

// The tests in this file cover late requests, blocking callbacks and log handlers, and releases in
// the background.

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

func TestOnAcquiredIsNotCalledAfterStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var k *contender
		var stopped atomic.Bool
		g := w.clientWith(client.Options{Logger: slog.New(hookHandler{slog.DiscardHandler, func(m string) {
			t.Logf("at %v the client logs %q", w.elapsed(), m)
			if strings.Contains(m, "answers again") {
				ctx, cancel := context.WithCancel(bg)
				cancel()
				t.Logf("Stop in the log handler returns %v", k.Stop(ctx))
				stopped.Store(true)
			}
		}})})
		w.stop()
		k = w.contendOver(g, "k", func(c *client.ContenderConfig) {
			c.OnAcquired = func(ctx context.Context, s client.State) {
				if stopped.Load() {
					t.Errorf("OnAcquired is called after Stop has returned; Err of its context is %v", ctx.Err())
				}
			}
			c.OnReleased = func(client.State) {}
		})
		time.Sleep(20 * time.Second)
		w.begin()
		time.Sleep(time.Minute)
	})
}

func TestHangingLoggerDoesNotExtendAnOwnership(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		block := make(chan struct{})
		g := w.clientWith(client.Options{Logger: slog.New(hookHandler{slog.DiscardHandler, func(m string) { <-block }})})
		a := w.contendOver(g, "a")
		synctest.Wait()
		b := w.contend("b")
		time.Sleep(5 * time.Second)
		a.silence()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if l := a.last(); l.to < 0 && b.IsOwner() {
			t.Errorf("at %v b owns the mutex, but a's context has not ended; callbacks of a: %s, IsOwner of a: %v", w.elapsed(), a.callbacks(), a.IsOwner())
		}
		close(block)
		a.heal()
		time.Sleep(time.Second)
	})
}

func TestTenureOfALateAcquireIsReleased(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := new(testClient)
		g.connect(w.server)
		g.rdb = redis.NewClient(&redis.Options{Dialer: g.dial, Addr: "127.0.0.1:7379", DisableIdentity: true, PoolSize: 10_000,
			ReadTimeout: 10 * time.Second, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		c, err := client.New(g.rdb, client.Options{Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		g.Client = c
		w.guests = append(w.guests, g)
		a := g.registry(t, registry.Config{ID: "a", Mode: registry.Spin})
		b := w.client().registry(t, registry.Config{ID: "b"})
		la, lb := obtain(t, a, "k"), obtain(t, b, "k")
		ha, hb := a.NewHolder(), b.NewHolder()
		must(t, lb.Lock(bg, hb))
		must(t, g.rdb.Ping(bg).Err())
		go func() { time.Sleep(time.Second); g.slow(0, 0) }()
		g.slow(5*time.Second, 0)
		ctx, cancel := context.WithTimeout(bg, 3550*time.Millisecond)
		defer cancel()
		t.Logf("Lock of a returns %v", la.Lock(ctx, ha))
		must(t, lb.Unlock(bg, hb))
		time.Sleep(20 * time.Second)
		t.Logf("the events of the mutex are %+v", w.history("spring:k"))
		if o := w.owner("spring:k"); o != "" {
			t.Errorf("at %v %q owns the lock, although its Lock gave up at 3.5 s; the events are %+v", w.elapsed(), o, w.history("spring:k"))
		}
	})
}

func TestStopOfAStoppedWorkerIsNoError(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		k, err := worker.New(w.client().Client, worker.Config{Mutex: "job", TTL: time.Second, StartWork: func(context.Context) error { return nil }, StopWork: func() error { return nil }})
		must(t, err)
		must(t, k.Start())
		time.Sleep(time.Second)
		must(t, k.Stop(bg))
		ctx, cancel := context.WithCancel(bg)
		cancel()
		bad := 0
		for range 1000 {
			if k.Stop(ctx) != nil {
				bad++
			}
		}
		if bad > 0 {
			t.Errorf("%d of 1000 calls of Stop of a stopped worker return an error, want none", bad)
		}
	})
}

func TestUnlockReturnsErrLostAfterARenewalWithoutReply(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		l := w.lock(g)
		time.Sleep(7 * time.Second)
		w.breakOff("job")
		b := w.contend("b")
		synctest.Wait()
		g.slow(0, time.Hour)
		time.Sleep(3 * time.Second) // the renewal gets no reply
		g.cut()
		g.slow(0, 0)
		t.Logf("at %v Err of the ownership context of a is %v; b is the owner: %v", w.elapsed(), l.Context().Err(), b.IsOwner())
		if err := l.Unlock(bg); err == nil && b.IsOwner() {
			t.Error("b has owned the mutex for 3 s, but Unlock of a returns nil, want an error")
		}
	})
}

func TestRegistryUnlockReturnsErrLostAfterARenewalWithoutReply(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ga := w.client()
		a := ga.registry(t, registry.Config{ID: "a"})
		la, ha := obtain(t, a, "k"), a.NewHolder()
		must(t, la.Lock(bg, ha))
		w.breakOff("spring:k")
		b := w.client().registry(t, registry.Config{ID: "b"})
		lb, hb := obtain(t, b, "k"), b.NewHolder()
		must(t, lb.Lock(bg, hb))
		ga.slow(0, time.Hour)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		t.Logf("a second Lock of a returns %v", la.Lock(ctx, ha))
		ga.cut()
		ga.slow(0, 0)
		if err := la.Unlock(bg, ha); err == nil {
			t.Error("Unlock returns nil, although b has had the lock meanwhile; want an error")
		}
		must(t, lb.Unlock(bg, hb))
	})
}

func TestCallbackThatEndsItsGoroutineStopsNoOther(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		d := w.recorder()
		k, err := w.client().NewContender(client.ContenderConfig{Mutex: "job", TTL: time.Second,
			OnAcquired: func(ctx context.Context, s client.State) {
				d.acquired(ctx, s)
				runtime.Goexit()
			}, OnReleased: d.released})
		must(t, err)
		must(t, k.Start())
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(bg, time.Hour)
		defer cancel()
		must(t, k.Stop(ctx))
	})
}

func TestCloseWaitsForCanceledLocks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		must(t, g.rdb.Ping(bg).Err())
		g.slow(0, time.Second)
		ctx, cancel := context.WithTimeout(bg, 500*time.Millisecond)
		defer cancel()
		_, err := g.Lock(ctx, "job", client.WithTTL(time.Hour))
		t.Logf("Lock returns %v", err)
		must(t, g.Close())
		must(t, g.rdb.Close())
		time.Sleep(time.Minute)
		if o := w.owner("job"); o != "" {
			t.Errorf("%q still owns the mutex, want no owner", o)
		}
		g.rdb = redis.NewClient(&redis.Options{Dialer: g.dial, Addr: "127.0.0.1:7379"})
	})
}

func TestALateReleaseEndsNoLaterTenureOfARegistry(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ga := w.client()
		a := ga.registry(t, registry.Config{ID: "a"})
		b := w.client().registry(t, registry.Config{ID: "b"})
		la, lb := obtain(t, a, "k"), obtain(t, b, "k")
		ha, hb := a.NewHolder(), b.NewHolder()
		must(t, lb.Lock(bg, hb))
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		go func() { time.Sleep(900 * time.Millisecond); ga.slow(6*time.Second, 0) }()
		// The context ends during Lock, and the RELEASE that Lock then sends takes 6 s.
		t.Logf("Lock of a returns %v", la.Lock(ctx, ha))
		time.Sleep(2500 * time.Millisecond)
		ga.slow(0, 0)
		time.Sleep(500 * time.Millisecond) // the client has repeated the RELEASE
		must(t, lb.Unlock(bg, hb))
		must(t, la.Lock(bg, ha))
		time.Sleep(4 * time.Second) // the first RELEASE has arrived
		if !ours(w.owner("spring:k"), "a") || la.Context(ha).Err() != nil {
			t.Errorf("%q owns the lock at the server, want a; the events are %+v", w.owner("spring:k"), w.history("spring:k"))
		}
		must(t, la.Unlock(bg, ha))
	})
}

func TestShortLeasesEndInTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.contend("a", lease(5*time.Millisecond, 0))
		b := w.contend("b", lease(5*time.Millisecond, 0))
		for range 200 {
			time.Sleep(37 * time.Millisecond)
			for _, k := range []*contender{a, b} {
				if k.IsOwner() {
					k.silence()
					time.Sleep(50 * time.Millisecond)
					k.heal()
				}
			}
		}
		a.stop()
		b.stop()
		w.neverTwo("job", a.recorder, b.recorder)
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
