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
	"github.com/simba-resp/simba-resp/client/worker"
)

// hookLog records each call of a hook as a line "id hook token took". For some hooks the line also
// has the owner, the error and "expired".
type hookLog struct {
	t     *testing.T
	mu    sync.Mutex // guards lines
	lines []string   // since the last call of wants
}

func (w *world) hooked() (*testClient, *hookLog) {
	h := &hookLog{t: w.t}
	return w.clientWith(client.Options{Hooks: h.hooks()}), h
}

func (h *hookLog) hooks() client.Hooks {
	note := func(name string) func(context.Context, client.HookEvent) {
		return func(ctx context.Context, e client.HookEvent) { h.note(ctx, name, e) }
	}
	return client.Hooks{
		Contended: note("contended"), Acquired: note("acquired"), NotAcquired: note("not acquired"),
		Released: note("released"), Lost: note("lost"), WorkDone: note("work done"),
	}
}

func (h *hookLog) note(ctx context.Context, name string, e client.HookEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil || ctx.Done() != nil {
		h.t.Errorf("the context of the hook %s can end: %v", name, ctx.Err())
	}
	line := fmt.Sprintf("%s %s %d %v", e.ID, name, e.Token, e.Took)
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

func TestHooksReportAWaitAndATenure(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, h := w.hooked()
		_, err := w.client().acquire(bg, "job", "other", time.Minute)
		must(t, err)
		l, err := g.Lock(bg, "job", client.WithID("a"))
		must(t, err)
		waited := w.elapsed()
		time.Sleep(time.Hour) // many renewals, but one tenure
		w.unlock(l)
		h.wants("a contended 0 0s owner other", fmt.Sprint("a acquired 2 ", waited), "a released 2 1h0m0s")
	})
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

func TestNotAcquiredReportsWhyAnAttemptEnded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other := w.contend("other")
		synctest.Wait()
		g, h := w.hooked()
		ctx, cancel := context.WithTimeout(bg, time.Hour)
		defer cancel()
		if _, err := g.Lock(ctx, "job", client.WithID("a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock returns %v, want context.DeadlineExceeded", err)
		}
		h.wants("a contended 0 0s owner other", "a not acquired 0 1h0m0s owner other")
		other.stop()

		g.silence()
		if _, err := g.TryLock(bg, "job", client.WithID("b")); !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("TryLock returns %v, want ErrUnavailable", err)
		}
		g.heal()
		h.wants("b not acquired 0 3s: server unavailable")

		must(t, g.rdb.Close())
		if _, err := g.Lock(bg, "job", client.WithID("c")); !errors.Is(err, client.ErrClosed) {
			t.Errorf("Lock returns %v, want ErrClosed", err)
		}
		h.wants("c not acquired 0 0s: closed")
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
		if err := l.Unlock(bg); !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("Unlock returns %v, want ErrUnavailable", err)
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
		g := w.clientWith(client.Options{Hooks: client.Hooks{WorkDone: func(_ context.Context, e client.HookEvent) {
			got = append(got, e.Err)
			if e.Took != time.Minute {
				t.Errorf("the work took %v, want a minute", e.Took)
			}
		}}})
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

func TestSchedulerReportsEachWork(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, h := w.hooked()
		beat := 0
		s, err := g.NewScheduler(client.ScheduleConfig{Mutex: "job", ID: "a", Period: time.Hour, Work: func(context.Context) error {
			beat++
			time.Sleep(time.Duration(beat) * time.Minute)
			if beat == 2 {
				panic("no paper")
			}
			return nil
		}})
		must(t, err)
		must(t, s.Start())
		time.Sleep(150 * time.Minute)
		h.wants("a acquired 1 0s", "a work done 1 1m0s", "a work done 1 2m0s", "a work done 1 3m0s")
		must(t, s.Stop(bg))
		h.wants("a released 1 2h30m0s")
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
		h1.wants("a released 1 1m0s", "a contended 0 0s")
		h2.wants("b acquired 2 1m0.2s")
		b.stop()
		h1.wants("a acquired 3 1s")
		h2.wants("b released 2 900ms")
		a.stop()
		h1.wants("a released 3 100ms")
	})
}

func TestHooksHaveTheValuesOfTheirCaller(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var calls int
		check := func(ctx context.Context, e client.HookEvent) {
			calls++
			if ctx.Value(ctxKey{}) != "value" || e.Mutex != "job" {
				t.Errorf("a hook gets the context value %v and the event %+v, want value and the mutex job", ctx.Value(ctxKey{}), e)
			}
		}
		g := w.clientWith(client.Options{Hooks: client.Hooks{Acquired: check, WorkDone: check, Released: check}})
		ctx, cancel := context.WithCancel(context.WithValue(bg, ctxKey{}, "value"))
		must(t, g.Do(ctx, "job", func(context.Context) error { cancel(); return nil }))
		if calls != 3 {
			t.Errorf("the hooks were called %d times, want 3", calls)
		}
	})
}

func TestWorkerAndRegistryCallHooks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, h := w.hooked()
		s, err := worker.New(g.Client, worker.Config{Mutex: "job", ID: "a", StartWork: func(context.Context) error { return nil }})
		must(t, err)
		must(t, s.Start())
		time.Sleep(time.Minute)
		must(t, s.Stop(bg))
		h.wants("a acquired 1 0s", "a work done 1 1m0s", "a released 1 1m0s")

		r := g.registry(t, registry.Config{ID: "b"})
		l, err := r.Obtain("key")
		must(t, err)
		holder := r.NewHolder()
		must(t, l.Lock(bg, holder))
		time.Sleep(time.Second)
		must(t, l.Unlock(bg, holder))
		must(t, l.Lock(bg, holder))
		time.Sleep(time.Hour) // longer than the lease of 60 s
		h.wants("b:1 acquired 2 0s", "b:1 released 2 1s", "b:2 acquired 3 0s", "b:2 lost 3 59.75s expired: mutex lost")
		if err := l.Unlock(bg, holder); !errors.Is(err, client.ErrLost) {
			t.Errorf("Unlock returns %v, want ErrLost", err)
		}
	})
}
