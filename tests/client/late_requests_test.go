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
