package clienttest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/client"
)

// worked records when scheduled work started, since the start of the world.
type worked struct {
	mu      sync.Mutex // guards the fields below
	at      []string
	working int
}

// scheduler returns a started Scheduler of "job". The function length gets the number of a call of
// the work, from 0, and returns how long the call lasts. A call also ends with its context. The end
// of the test stops the Scheduler.
func (w *world) scheduler(g *testClient, cfg client.ScheduleConfig, length func(n int) time.Duration) (*client.Scheduler, *worked) {
	w.t.Helper()
	b := new(worked)
	cfg.Mutex, cfg.TTL, cfg.Transition = "job", 10*time.Second, 2*time.Second
	if cfg.Work == nil {
		cfg.Work = func(ctx context.Context) error { b.work(w, ctx, length); return nil }
	}
	s, err := g.NewScheduler(cfg)
	must(w.t, err)
	must(w.t, s.Start())
	w.t.Cleanup(func() { _ = s.Stop(bg) })
	return s, b
}

func (b *worked) work(w *world, ctx context.Context, length func(int) time.Duration) {
	b.mu.Lock()
	n := len(b.at)
	b.at = append(b.at, w.elapsed().String())
	if b.working++; b.working > 1 {
		w.t.Error("two calls of the work run at a time")
	}
	b.mu.Unlock()
	select {
	case <-time.After(length(n)):
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.working--
}

// drain returns the starts since the last drain.
func (b *worked) drain() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() { b.at = nil }()
	return fmt.Sprint(b.at)
}

// inside returns how many calls of the work are running.
func (b *worked) inside() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.working
}

func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func TestFixedRateCountsFromStartToStart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, b := w.scheduler(w.client(), client.ScheduleConfig{InitialDelay: time.Second, Period: 10 * time.Second}, always(3*time.Second))
		time.Sleep(35 * time.Second)
		if got := b.drain(); got != "[1s 11s 21s 31s]" {
			t.Errorf("the work started at %s, want 1s and each 10s after that", got)
		}
	})
}

func TestFixedRateMakesUpForOneMissedStart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		takes := []time.Duration{25 * time.Second, 47 * time.Second, 0, 0, 10 * time.Second, 0, 0}
		_, b := w.scheduler(w.client(), client.ScheduleConfig{Period: 10 * time.Second}, func(n int) time.Duration { return takes[n] })
		time.Sleep(111 * time.Second)
		if got := b.drain(); got != "[0s 25s 1m12s 1m20s 1m30s 1m40s 1m50s]" {
			t.Errorf("the work started at %s, want 0s 25s 1m12s 1m20s 1m30s 1m40s 1m50s", got)
		}
	})
}

func TestFixedDelayCountsFromTheEndOfTheWork(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, b := w.scheduler(w.client(), client.ScheduleConfig{Strategy: client.FixedDelay, Period: 10 * time.Second}, always(3*time.Second))
		time.Sleep(30 * time.Second)
		if got := b.drain(); got != "[0s 13s 26s]" {
			t.Errorf("the work started at %s, want 0s 13s 26s", got)
		}
	})
}

func TestSchedulerStopEndsTheWorkAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s, b := w.scheduler(w.client(), client.ScheduleConfig{InitialDelay: time.Second, Period: 10 * time.Second}, always(time.Minute))
		time.Sleep(5 * time.Second)
		for range 3 {
			if b.drain(); b.inside() != 1 || !s.IsOwner() {
				t.Errorf("%d calls of the work run, want 1; or the scheduler does not lead", b.inside())
			}
			at := w.elapsed()
			if err := s.Stop(bg); err != nil || b.inside() != 0 || w.elapsed() != at {
				t.Errorf("Stop returns %v while %d calls of the work run, after %v; want nil, 0, at once", err, b.inside(), w.elapsed()-at)
			}
			w.nothingLeft("job")
			time.Sleep(time.Hour)
			if got := b.drain(); got != "[]" {
				t.Errorf("the stopped scheduler starts work at %s, want none", got)
			}
			at = w.elapsed()
			must(t, s.Start())
			time.Sleep(5 * time.Second)
			if got := b.drain(); got != fmt.Sprintf("[%v]", at+time.Second) {
				t.Errorf("the scheduler was started at %v, and its work at %s, want one second later", at, got)
			}
		}
	})
}

func TestOneOfManySchedulersWorks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var inside sync.Mutex
		counts := make([]int, 3)
		var all []*client.Scheduler
		var guests []*testClient
		for i := range counts {
			g := w.client()
			s, _ := w.scheduler(g, client.ScheduleConfig{Period: time.Second, Work: func(ctx context.Context) error {
				if !inside.TryLock() {
					t.Error("two calls of the work run at a time")
					return nil
				}
				defer inside.Unlock()
				counts[i]++
				select {
				case <-time.After(900 * time.Millisecond):
				case <-ctx.Done():
				}
				return nil
			}}, nil)
			all, guests = append(all, s), append(guests, g)
		}
		for i := range 30 {
			time.Sleep(20 * time.Second)
			for j, s := range all {
				if !s.IsOwner() {
					continue
				}
				if i%2 == 0 {
					must(t, s.Stop(bg))
					must(t, s.Start())
				} else {
					guests[j].silence()
					time.Sleep(20 * time.Second)
					guests[j].heal()
				}
				break
			}
		}
		for _, s := range all {
			must(t, s.Stop(bg))
		}
		if counts[0] < 100 || counts[1] < 100 || counts[2] < 100 || counts[0]+counts[1]+counts[2] < 500 {
			t.Errorf("the schedulers have worked %v times, want at least 100 each and 500 together", counts)
		}
	})
}

func TestSchedulerContinuesAfterAPanic(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var log bytes.Buffer
		calls := 0
		g := w.clientWith(client.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		s, _ := w.scheduler(g, client.ScheduleConfig{Period: time.Second, Work: func(context.Context) error {
			if calls++; calls == 2 {
				panic("the disk is full")
			}
			return nil
		}}, nil)
		time.Sleep(4500 * time.Millisecond)
		if !s.IsOwner() {
			t.Error("the scheduler is not the owner after a panic of the work")
		}
		if err := s.Stop(bg); err != nil || calls != 5 {
			t.Errorf("Stop returns %v after %d calls of the work, want nil after 5", err, calls)
		}
		if got := log.String(); !strings.Contains(got, "the disk is full") || !strings.Contains(got, "TestSchedulerContinuesAfterAPanic") || !strings.Contains(got, "mutex=job") {
			t.Errorf("the log does not have the panic, its stack and the mutex: %s", got)
		}
	})
}
