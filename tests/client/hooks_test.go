package clienttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/registry"
)

// hookLog records the events of some kinds as lines "id kind token took", with the first letter of
// the id. For some kinds the line also has the owner, the error and "expired".
type hookLog struct {
	t     *testing.T
	mu    sync.Mutex // guards lines
	lines []string   // since the last call of wants
}

func (w *world) hooked() (*testClient, *hookLog) {
	h := &hookLog{t: w.t}
	return w.clientWith(client.Options{Hook: h.note, IDPrefix: "x"}), h
}

// kinds are the words for the kinds that a hookLog records.
var kinds = map[string]string{
	"Contended": "contended", "Acquired": "acquired", "NotAcquired": "not acquired",
	"Released": "released", "Lost": "lost", "WorkDone": "work done",
}

func (h *hookLog) note(ctx context.Context, e client.Event) {
	name := kinds[e.Kind]
	if name == "" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil || ctx.Done() != nil {
		h.t.Errorf("the context of the hook %s can end: %v", name, ctx.Err())
	}
	line := fmt.Sprintf("%c %s %d %v", e.ID[0], name, e.Token, e.Took)
	if e.Owner.ID != "" {
		line += " owner " + e.Owner.ID
	}
	if e.Expired {
		line += " expired"
	}
	for _, known := range []error{client.ErrLost, client.ErrUnavailable, client.ErrClosed} {
		if errors.Is(e.Err, known) {
			line += fmt.Sprintf(": %v", known)
		}
	}
	h.lines = append(h.lines, line)
}

// wants fails the test unless exactly these hooks were called, in this order, since the last call
// of wants.
func (h *hookLog) wants(lines ...string) {
	h.t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.lines, lines) {
		h.t.Errorf("hooks\n%q, want\n%q", h.lines, lines)
	}
	h.lines = nil
}

func TestHooksAreCalledBeforeTheCallsTheyReportReturn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, h := w.hooked()
		count := func(want int) {
			t.Helper()
			h.mu.Lock() // not after synctest.Wait, since the hooks must have been called already
			defer h.mu.Unlock()
			if len(h.lines) != want {
				t.Errorf("the calls of hooks are %q, want %d", h.lines, want)
			}
		}
		l, err := g.Lock(bg, "job", client.WithID("a"))
		must(t, err)
		count(1)
		if _, err := g.TryLock(bg, "job", client.WithID("b")); !errors.Is(err, client.ErrNotAcquired) {
			t.Errorf("TryLock returns %v, want ErrNotAcquired", err)
		}
		count(3)
		w.unlock(l)
		count(4)
		must(t, g.Do(bg, "job", func(context.Context) error { count(5); return nil }, client.WithID("c")))
		count(7)
		h.wants("a acquired 1 0s", "b contended 0 0s owner a", "b not acquired 0 0s owner a", "a released 1 0s",
			"c acquired 2 0s", "c work done 2 0s", "c released 2 0s")
	})
}

// Close ends a tenure before its hook Acquired has returned.
func TestReleasedComesAfterAcquired(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var acquired sync.Map // by mutex
		g := w.clientWith(client.Options{Hook: func(_ context.Context, e client.Event) {
			switch e.Kind {
			case "Acquired":
				time.Sleep(time.Second)
				acquired.Store(e.Mutex, true)
			case "Released":
				if _, found := acquired.Load(e.Mutex); !found {
					t.Error("Released comes before the hook Acquired has returned")
				}
			}
		}})
		for _, lock := range []func() error{
			func() error { _, err := g.Lock(bg, "job"); return err },
			func() error { return g.Do(bg, "another", func(context.Context) error { return nil }) },
		} {
			go func() { must(t, lock()) }()
		}
		time.Sleep(500 * time.Millisecond)
		must(t, g.Close())
		time.Sleep(time.Second)
		w.nothingLeft("job")
	})
}

func TestNotAcquiredReportsWhyAnAttemptEnded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other := w.contend("other")
		synctest.Wait()
		g, h := w.hooked()
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		if _, err := g.Lock(ctx, "job", client.WithID("a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock returns %v, want context.DeadlineExceeded", err)
		}
		h.wants("a contended 0 0s owner other", "a not acquired 0 1m0s owner other")
		other.stop()

		g.silence()
		if _, err := g.TryLock(bg, "job", client.WithID("b")); !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("TryLock returns %v, want ErrUnavailable", err)
		}
		g.heal()
		h.wants("b not acquired 0 3s: server unavailable")

		g.silence()
		ctx, cancel = context.WithTimeout(bg, 10*time.Second) // several requests
		defer cancel()
		_, _ = g.Lock(ctx, "job", client.WithID("c"))
		g.heal()
		h.wants("c not acquired 0 10s: server unavailable")

		must(t, g.rdb.Close())
		if _, err := g.Lock(bg, "job", client.WithID("d")); !errors.Is(err, client.ErrClosed) {
			t.Errorf("Lock returns %v, want ErrClosed", err)
		}
		h.wants("d not acquired 0 0s: closed")
		w.guests = slices.DeleteFunc(w.guests, func(o *testClient) bool { return o == g })
		must(t, g.Close())
		g.cut()
		g.all.Wait()
	})
}

func TestLostReportsWhetherTheLeaseExpired(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, h := w.hooked()
		l, err := g.Lock(bg, "job", client.WithID("a"))
		must(t, err)
		time.Sleep(time.Second)
		g.silence()
		<-l.Context().Done() // 1 % before the end of the lease of 12 s, which began after 0.8 s
		h.wants("a acquired 1 0s", "a lost 1 12.68s expired: mutex lost")
		g.heal()
		time.Sleep(time.Minute)
		if err := l.Unlock(bg); !errors.Is(err, client.ErrLost) {
			t.Errorf("Unlock returns %v, want ErrLost", err)
		}

		l, err = g.Lock(bg, "job", client.WithID("b"))
		must(t, err)
		time.Sleep(5 * time.Second)
		w.breakOff("job")
		<-l.Context().Done()
		h.wants("b acquired 2 0s", "b lost 2 5s: mutex lost")
	})
}

func TestLostIsReportedBeforeTheNextTenureBegins(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := &hookLog{t: t}
		w.contendOver(w.clientWith(client.Options{Hook: func(ctx context.Context, e client.Event) {
			if e.Kind == "Lost" {
				time.Sleep(time.Second)
			}
			h.note(ctx, e)
		}}), "a")
		time.Sleep(5 * time.Second)
		w.breakOff("job")
		time.Sleep(5 * time.Second)
		h.wants("a acquired 1 0s", "a work done 1 5s", "a lost 1 5s: mutex lost", "a acquired 2 0s")
	})
}

func TestATenureThatIsBrokenBeforeUnlockIsLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, h := w.hooked()
		l, err := g.Lock(bg, "job", client.WithID("a"))
		must(t, err)
		w.breakOff("job") // before the owner subscribes to notices
		if err := l.Unlock(bg); !errors.Is(err, client.ErrLost) {
			t.Errorf("Unlock returns %v, want ErrLost", err)
		}
		h.wants("a acquired 1 0s", "a lost 1 0s: mutex lost")
	})
}

func TestReleasedReportsThatTheServerDidNotConfirm(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, h := w.hooked()
		l, err := g.Lock(bg, "job", client.WithID("a"))
		must(t, err)
		g.silence()
		if err := l.Unlock(bg); !errors.Is(err, client.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || w.elapsed() != timeout {
			t.Errorf("Unlock returns %v after %v, want ErrUnavailable after %v", err, w.elapsed(), timeout)
		}
		h.wants("a acquired 1 0s") // the release has not reached the server
		time.Sleep(time.Minute)
		h.mu.Lock()
		lines := h.lines
		h.mu.Unlock()
		if len(lines) != 1 || lines[0][:len("a released 1 ")] != "a released 1 " {
			t.Errorf("the calls of hooks are %q, want one Released", lines)
		}
		g.heal()
	})
}

func TestWorkDoneReportsHowTheWorkEnded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var got []error
		g := w.clientWith(client.Options{Hook: func(_ context.Context, e client.Event) {
			if e.Kind != "WorkDone" {
				return
			}
			got = append(got, e.Err)
			if e.Took != time.Minute {
				t.Errorf("the work took %v, want a minute", e.Took)
			}
		}})
		failure := errors.New("no paper")
		work := func(end func() error) func(context.Context) error {
			return func(context.Context) error { time.Sleep(time.Minute); return end() }
		}
		must(t, g.Do(bg, "job", work(func() error { return nil })))
		_ = g.TryDo(bg, "job", work(func() error { return failure }))
		for _, end := range []func(){func() { panic("no paper") }, runtime.Goexit} {
			var ended sync.WaitGroup
			ended.Go(func() {
				defer func() { _ = recover() }()
				_ = g.Do(bg, "job", work(func() error { end(); return nil }))
			})
			ended.Wait()
		}
		if len(got) != 4 || got[0] != nil || got[1] != failure || got[2] == nil || got[3] == nil {
			t.Errorf("the errors of WorkDone are %v, want nil, %v and two others", got, failure)
		}
		w.nothingLeft("job")
	})
}

func TestEveryReportsEachRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, h := w.hooked()
		ctx, cancel := context.WithTimeout(bg, 150*time.Second)
		defer cancel()
		run := 0
		_ = g.Every(ctx, "job", client.Schedule{Period: time.Minute}, func(context.Context) error {
			run++
			time.Sleep(time.Duration(run) * time.Second)
			return nil
		})
		h.wants("x acquired 1 0s", "x work done 1 1s", "x work done 1 2s", "x work done 1 3s", "x released 1 2m30s")
	})
}

func TestContenderReportsEachTenure(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g1, h1 := w.hooked()
		g2, h2 := w.hooked()
		a := w.contendOver(g1, "a")
		synctest.Wait()
		b := w.contendOver(g2, "b")
		time.Sleep(time.Minute)
		h1.wants("a acquired 1 0s")
		h2.wants("b contended 0 0s owner a")
		g2.slow(0, 100*time.Millisecond) // a tries again before b learns that it is next
		a.Resign()
		time.Sleep(time.Second)
		h1.wants("a work done 1 1m0s", "a released 1 1m0s", "a contended 0 0s owner b")
		h2.wants("b acquired 2 1m0.2s")
		b.stop()
		h1.wants("a acquired 3 1s")
		h2.wants("b work done 2 800ms", "b released 2 900ms")
		a.stop()
		h1.wants("a work done 3 100ms", "a released 3 100ms")
	})
}

func TestAskedAndRenewedReportRequests(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var lines []string
		var l *client.Lock // nil until it is locked
		g := w.clientWith(client.Options{Hook: func(_ context.Context, e client.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind != "Asked" && e.Kind != "Renewed" {
				return
			}
			lines = append(lines, fmt.Sprint(e.Kind, e.Token))
			if l != nil && (l.Context().Err() != nil || l.Owner().Token != e.Token) { // a hook may read the ownership
				t.Errorf("in a hook the owner is %+v, and the ownership has ended: %v", l.Owner(), l.Context().Err())
			}
		}})
		wants := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(lines, want) {
				t.Errorf("events %q, want %q", lines, want)
			}
			lines = nil
		}
		locked, err := g.Lock(bg, "job", client.WithID("a"), client.WithTTL(time.Minute))
		must(t, err)
		wants("Asked0")
		mu.Lock()
		l = locked
		mu.Unlock()
		time.Sleep(30 * time.Second) // one renewal after the subscription, and one after a third of the TTL
		wants("Asked1", "Renewed1", "Asked1", "Renewed1")
		must(t, locked.Renew(bg))
		wants("Asked1", "Renewed1")
		w.unlock(locked)
		wants()
	})
}

func TestTheRegistryCallsTheHook(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, h := w.hooked()
		r := g.registry(t, registry.Config{})
		l, holder := obtain(t, r, "key"), r.NewHolder()
		must(t, l.Lock(bg, holder))
		time.Sleep(time.Second)
		must(t, l.Unlock(bg, holder))
		must(t, l.Lock(bg, holder))
		time.Sleep(time.Hour) // longer than the lease of 60 s
		h.wants("x acquired 1 0s", "x released 1 1s", "x acquired 2 0s", "x lost 2 59.75s expired: mutex lost")
	})
}
