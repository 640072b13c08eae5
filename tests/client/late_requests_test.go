package clienttest

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/client"
)

// The tests in this file cover late requests and replies, and releases in the background.

func TestOnAcquiredIsNotCalledAfterStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var k *contender
		var stopped atomic.Bool
		g := w.clientWith(client.Options{Logger: slog.New(hookHandler{slog.DiscardHandler, func(m string) {
			if strings.Contains(m, "answers again") {
				ctx, cancel := context.WithCancel(bg)
				cancel()
				_ = k.Stop(ctx)
				stopped.Store(true)
			}
		}})})
		w.stop()
		k = w.contendWith(g, w.recorder(), "k", func(ctx context.Context) {
			t.Errorf("OnAcquired is called, after Stop has returned: %v", stopped.Load())
		}, func() {})
		time.Sleep(20 * time.Second)
		w.begin()
		time.Sleep(time.Minute)
		if !stopped.Load() {
			t.Error("the client does not log that the server answers again, so the test proves nothing")
		}
	})
}

// An ACQUIRE lasts longer than its Lock.
func TestTenureOfALateAcquireIsReleased(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		must(t, g.rdb.Ping(bg).Err())
		other := w.lock(w.client())
		go func() { time.Sleep(time.Second); g.slow(0, 0) }()
		g.slow(5*time.Second, 0)
		ctx, cancel := context.WithTimeout(bg, 3550*time.Millisecond)
		defer cancel()
		if _, err := g.Lock(ctx, "job"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock returns %v, want context.DeadlineExceeded", err)
		}
		w.unlock(other)
		time.Sleep(20 * time.Second)
		w.nothingLeft("job")
		for _, e := range w.history("job") {
			if e.Kind.String() == "expired" {
				t.Errorf("the late tenure was not released: %+v", w.history("job"))
			}
		}
	})
}

func TestUnlockReturnsErrLostAfterARenewalWithoutReply(t *testing.T) {
	for name, renew := range map[string]func(*client.Lock){
		"renewed by the Client": func(*client.Lock) { time.Sleep(9 * time.Second) },
		"renewed by hand": func(l *client.Lock) {
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			_ = l.Renew(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				g := w.client()
				var options []client.Option
				if name == "renewed by hand" {
					options = append(options, client.WithoutRenewal())
				}
				l, err := g.Lock(bg, "job", options...)
				must(t, err)
				g.slow(0, time.Hour)
				w.breakOff("job")
				b := w.contend("b")
				synctest.Wait()
				renew(l)
				g.cut()
				g.slow(0, 0)
				if err := l.Unlock(bg); !errors.Is(err, client.ErrLost) || !b.IsOwner() {
					t.Errorf("b is the owner: %v, but Unlock returns %v, want ErrLost", b.IsOwner(), err)
				}
			})
		})
	}
}

func TestCloseWaitsForCanceledLocks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		must(t, g.rdb.Ping(bg).Err())
		g.slow(0, time.Second)
		ctx, cancel := context.WithTimeout(bg, 500*time.Millisecond)
		defer cancel()
		if _, err := g.Lock(ctx, "job", client.WithTTL(time.Hour)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock returns %v, want context.DeadlineExceeded", err)
		}
		must(t, g.Close())
		w.nothingLeft("job")
	})
}

// A RELEASE that is late, and was repeated, must not end a later tenure of the same contender: then
// there would be two owners until the next renewal.
func TestALateReleaseEndsNoLaterTenure(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		other := w.lock(w.client())
		time.AfterFunc(900*time.Millisecond, func() { g.slow(6*time.Second, 0) })
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		// The context ends during Lock, and the RELEASE that Lock then sends takes 6 s.
		if _, err := g.Lock(ctx, "job", client.WithID("a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock returns %v, want context.DeadlineExceeded", err)
		}
		time.Sleep(2500 * time.Millisecond)
		g.slow(0, 0)
		time.Sleep(500 * time.Millisecond) // the client has repeated the RELEASE
		w.unlock(other)
		l, err := g.Lock(bg, "job", client.WithID("a"))
		must(t, err)
		time.Sleep(4 * time.Second) // the first RELEASE has arrived
		if w.owner("job") != "a" || l.Context().Err() != nil {
			t.Errorf("%q owns the mutex at the server, want a; the events are %+v", w.owner("job"), w.history("job"))
		}
		w.unlock(l)
	})
}

// The same after an ACQUIRE without a reply, for a contender that contends again.
func TestALateReleaseEndsNoLaterTenureOfALeader(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, d := w.client(), w.recorder()
		must(t, g.rdb.Ping(bg).Err())
		g.silence()
		k := w.contendWith(g, d, "k", d.acquired, d.released)
		time.Sleep(timeout + time.Millisecond)
		g.cut() // the first ACQUIRE gets no reply
		g.heal()
		time.Sleep(time.Minute)
		g.slow(6*time.Second, 0)
		k.Resign() // its RELEASE takes 6 s
		time.Sleep(3 * time.Second)
		g.slow(0, 0)
		time.Sleep(time.Second) // the client has repeated the RELEASE
		if !k.IsOwner() || k.callbacks() != "[acquired 1 released acquired 2]" {
			t.Fatalf("the callbacks are %s, want a second tenure", k.callbacks())
		}
		time.Sleep(4 * time.Second)
		if !k.IsOwner() || w.owner("job") != "k" {
			t.Errorf("k is the owner by its clock: %v, the server's owner is %q, want k", k.IsOwner(), w.owner("job"))
		}
		w.neverTwo("job", d)
	})
}

func TestShortLeasesEndInTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.contend("a", lease(5*time.Millisecond, 0)...)
		b := w.contend("b", lease(5*time.Millisecond, 0)...)
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
		if n := len(w.tenures("job")); n < 50 {
			t.Errorf("there were %d tenures, want many", n)
		}
		w.neverTwo("job", a.recorder, b.recorder)
	})
}
