package clienttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/worker"
)

func TestRunContendsUntilItsContextEndsAndLeavesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, name := range []string{"Contender", "Scheduler", "Worker"} {
			g := w.client()
			ctx, cancel := context.WithCancel(context.WithValue(bg, ctxKey{}, "value"))
			leads := make(chan any, 1)
			var run func(context.Context) error
			note := func(ctx context.Context) error {
				select {
				case leads <- ctx.Value(ctxKey{}):
				default:
				}
				<-ctx.Done()
				time.Sleep(time.Second) // the callback returns one second later
				return nil
			}
			switch name {
			case "Contender":
				k, err := g.NewContender(client.ContenderConfig{Mutex: "job", OnAcquired: func(ctx context.Context, _ client.State) { _ = note(ctx) }})
				must(t, err)
				run = k.Run
			case "Scheduler":
				s, err := g.NewScheduler(client.ScheduleConfig{Mutex: "job", Period: time.Hour, Work: note})
				must(t, err)
				run = s.Run
			case "Worker":
				k, err := worker.New(g.Client, worker.Config{Mutex: "job", StartWork: note})
				must(t, err)
				run = k.Run
			}
			ended := make(chan error, 1)
			go func() { ended <- run(ctx) }()
			if got := <-leads; got != "value" {
				t.Errorf("%s: the callback's context has the value %v, want that of the context of Run", name, got)
			}
			if err := run(ctx); !errors.Is(err, client.ErrInUse) {
				t.Errorf("%s: a second Run returns %v, want ErrInUse", name, err)
			}
			at := w.elapsed()
			cancel()
			if err := <-ended; err != nil || w.elapsed()-at != time.Second {
				t.Errorf("%s: Run returns %v after %v, want nil after a second", name, err, w.elapsed()-at)
			}
			w.nothingLeft("job")
		}
	})
}

func TestStopInACallbackWithItsContextDoesNotWait(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		stopped := make(chan error, 3)
		var k *client.Contender
		var err error
		k, err = g.NewContender(client.ContenderConfig{Mutex: "job", OnAcquired: func(ctx context.Context, _ client.State) { stopped <- k.Stop(ctx) }})
		must(t, err)
		var s *client.Scheduler
		s, err = g.NewScheduler(client.ScheduleConfig{Mutex: "job2", Period: time.Second, Work: func(ctx context.Context) error { stopped <- s.Stop(ctx); return nil }})
		must(t, err)
		var x *worker.Worker
		x, err = worker.New(g.Client, worker.Config{Mutex: "job3", StartWork: func(ctx context.Context) error { stopped <- x.Stop(ctx); return nil }})
		must(t, err)
		must(t, k.Run(bg))
		must(t, s.Run(bg))
		must(t, x.Run(bg))
		for range 3 {
			must(t, <-stopped)
		}
		for _, mutex := range []string{"job", "job2", "job3"} {
			w.nothingLeft(mutex)
		}
	})
}

func TestQuitMayBeCalledInEveryCallback(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		var k *client.Contender
		k, err := g.NewContender(client.ContenderConfig{Mutex: "job", OnAcquired: func(context.Context, client.State) { k.Resign() }, OnReleased: func(client.State) { k.Quit() }})
		must(t, err)
		must(t, k.Run(bg))
		var x *worker.Worker
		x, err = worker.New(g.Client, worker.Config{
			Mutex: "job", StartWork: func(context.Context) error { return nil },
			Changed: func(_, to worker.State) {
				if to == worker.Working {
					x.Quit()
				}
			},
		})
		must(t, err)
		must(t, x.Run(bg))
		w.nothingLeft("job")
		k.Quit() // no effect on a stopped contender
		x.Quit()
	})
}

func TestStopThroughADeadConnectionTakesNoLongerThanTimeout(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		k := w.contend("k")
		synctest.Wait()
		k.freeze()
		at := w.elapsed()
		err := k.Stop(bg)
		if took := w.elapsed() - at; took > 3*time.Second || err != nil && (!errors.Is(err, client.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)) {
			t.Errorf("Stop returns %v after %v, want nil or ErrUnavailable", err, took)
		}
		k.silence()
		k.cut()
		if err := k.Start(); err == nil {
			at = w.elapsed()
			if err := k.Stop(bg); w.elapsed()-at > 3*time.Second {
				t.Errorf("Stop returns %v after %v, want at most 3s", err, w.elapsed()-at)
			}
		}
	})
}

func TestResignHandsOffToTheNextWaiter(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.contend("a")
		synctest.Wait()
		b := w.contend("b")
		synctest.Wait()
		c := w.contend("c")
		synctest.Wait()
		for _, k := range []*contender{a, b, c, a} {
			if got := w.owner("job"); got != k.ID() {
				t.Fatalf("the owner is %q, want %s", got, k.ID())
			}
			at := w.elapsed()
			k.Resign()
			if k.IsOwner() {
				t.Errorf("%s is the owner after Resign", k.ID())
			}
			k.Resign() // has no effect without an ownership
			synctest.Wait()
			if w.elapsed() != at {
				t.Errorf("the next contender is the owner %v after Resign, want at once", w.elapsed()-at)
			}
		}
		if got := a.callbacks(); got != "[acquired 1 released acquired 4 released]" {
			t.Errorf("the callbacks of a are %s, want acquired 1, released, acquired 4, released", got)
		}
		w.neverTwo("job", a.recorder, b.recorder, c.recorder)
		a.stop()
		c.stop()
		b.stop()
		w.nothingLeft("job")
	})
}

func TestResignWithoutWaitersBeginsAnotherTenure(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, log := w.logged()
		k := w.contendOver(g, "k")
		synctest.Wait()
		for range 3 {
			k.Resign()
			synctest.Wait()
		}
		if got := log(); got != "" { // Resign is not a loss
			t.Errorf("the log is not empty:\n%s", got)
		}
		if got := k.callbacks(); got != "[acquired 1 released acquired 2 released acquired 3 released acquired 4]" {
			t.Errorf("the callbacks are %s, want four tenures, the last without released", got)
		}
	})
}

func TestStopSoonAfterResignIsNoOutage(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, log := w.logged()
		k := w.contendOver(g, "k")
		synctest.Wait()
		g.slow(time.Millisecond, time.Millisecond)
		k.Resign()
		time.Sleep(time.Millisecond)
		must(t, k.Stop(bg))
		time.Sleep(time.Minute)
		if got := log(); got != "" {
			t.Errorf("the log is not empty: %s", got)
		}
		w.nothingLeft("job")
	})
}

func TestStopSoonAfterResignTakesNoLongerThanTimeout(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		k := w.contend("k")
		synctest.Wait()
		k.silence()
		k.Resign()
		time.Sleep(100 * time.Millisecond)
		at := w.elapsed()
		if err := k.Stop(bg); !errors.Is(err, client.ErrUnavailable) || w.elapsed()-at > 3*time.Second {
			t.Errorf("Stop returns %v after %v, want ErrUnavailable", err, w.elapsed()-at)
		}
	})
}

func TestWorkerResignsIfStartWorkEndsItsGoroutine(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, log := w.logged()
		starts := 0
		k, err := worker.New(g.Client, worker.Config{Mutex: "job", StartWork: func(context.Context) error {
			if starts++; starts == 1 {
				runtime.Goexit()
			}
			return nil
		}})
		must(t, err)
		must(t, k.Start())
		synctest.Wait()
		w.nothingLeft("job")
		if !strings.Contains(log(), "ended its goroutine") {
			t.Errorf("the log does not say that a callback ended its goroutine: %s", log())
		}
		time.Sleep(11 * time.Second)
		if k.State() != worker.Working {
			t.Errorf("a TTL later the worker is %v, want working", k.State())
		}
		must(t, k.Stop(bg))
	})
}

func TestResignDuringAnOutageReleasesLater(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		k := w.contend("k", lease(time.Hour, 0))
		synctest.Wait()
		w.stop()
		k.Resign()
		time.Sleep(time.Minute)
		if k.IsOwner() {
			t.Error("the contender is the owner after Resign")
		}
		w.begin()
		time.Sleep(20 * time.Second)
		if got := w.tenures("job"); len(got) != 2 || got[0].To >= time.Hour || !k.IsOwner() {
			t.Errorf("the tenures are %+v, want two, the first shorter than its lease", got)
		}
	})
}

func TestAnOverdueCallbackIsLoggedOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, log := w.logged()
		back := make(chan struct{})
		k, err := g.NewContender(client.ContenderConfig{Mutex: "job", OnAcquired: func(context.Context, client.State) { <-back }})
		must(t, err)
		must(t, k.Start())
		time.Sleep(time.Hour)
		if got := log(); got != "" {
			t.Errorf("the log is not empty before the ownership ends: %s", got)
		}
		w.breakOff("job")
		time.Sleep(time.Hour)
		if got := log(); strings.Count(got, "a callback has not returned") != 1 {
			t.Errorf("the log does not have one line about the callback:\n%s", got)
		}
		close(back)
		must(t, k.Stop(bg))
	})
}

func TestScheduledWorkThatEndsItsGoroutineResigns(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, log := w.logged()
		var works atomic.Int32
		s, _ := w.scheduler(g, client.ScheduleConfig{Period: time.Second, Work: func(context.Context) error {
			n := works.Add(1)
			if n == 1 {
				runtime.Goexit()
			}
			return fmt.Errorf("failure %d", n)
		}}, nil)
		time.Sleep(5 * time.Second)
		if works.Load() != 1 || s.IsOwner() {
			t.Errorf("the work ran %d times within the TTL, want once; or the scheduler leads", works.Load())
		}
		time.Sleep(7500 * time.Millisecond)
		if works.Load() != 4 || !s.IsOwner() {
			t.Errorf("the work ran %d times, want 4; or the scheduler does not lead", works.Load())
		}
		got := log()
		for _, want := range []string{"ended its goroutine", "failure 2", "failure 3", "contender=" + s.ID()} {
			if !strings.Contains(got, want) {
				t.Errorf("the log does not say %s:\n%s", want, got)
			}
		}
	})
}

func TestDefaultLoggerIsUsedWithoutALogger(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	log := new(bytes.Buffer)
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		c, err := client.New(g.rdb, client.Options{})
		must(t, err)
		s, err := c.NewScheduler(client.ScheduleConfig{Mutex: "job", Period: time.Second, Work: func(context.Context) error { panic("no paper") }})
		must(t, err)
		must(t, s.Start())
		time.Sleep(500 * time.Millisecond)
		must(t, c.Close())
		if !strings.Contains(log.String(), "no paper") {
			t.Errorf("the log does not have the panic no paper: %s", log)
		}
	})
}

func TestAlignedScheduleRunsOnceThoughLeadersChange(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var mu sync.Mutex // guards the variable all
		var all []string
		work := func(id string) func(context.Context) error {
			return func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, fmt.Sprint(id, " ", w.elapsed()))
				return nil
			}
		}
		var list []*client.Scheduler
		for _, id := range []string{"a", "b", "c"} {
			s, err := w.client().NewScheduler(client.ScheduleConfig{Mutex: "job", ID: id, Period: time.Hour, AlignToClock: true, Work: work(id)})
			must(t, err)
			must(t, s.Start())
			synctest.Wait()
			list = append(list, s)
		}
		time.Sleep(time.Hour)
		for _, s := range list { // three schedulers lead within one second
			time.Sleep(300 * time.Millisecond)
			s.Resign()
		}
		time.Sleep(2*time.Hour + time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if got := fmt.Sprint(all); got != "[a 1h0m0s a 2h0m0s a 3h0m0s]" {
			t.Errorf("the work ran as %s, want once in each of three hours", got)
		}
		for _, s := range list {
			must(t, s.Stop(bg))
		}
	})
}

func TestAlignedScheduleSkipsMissedStartTimes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		takes := []time.Duration{0, 150 * time.Second, 0, 0}
		_, b := w.scheduler(w.client(), client.ScheduleConfig{Period: time.Minute, AlignToClock: true}, func(n int) time.Duration { return takes[n] })
		time.Sleep(6*time.Minute + time.Second)
		if got := b.drain(); got != "[1m0s 2m0s 5m0s 6m0s]" {
			t.Errorf("the work started at %s, want 1m, 2m, 5m and 6m", got)
		}
	})
}
