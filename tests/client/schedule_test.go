package clienttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/contend"
)

// worked records when scheduled work started, since the start of the world.
type worked struct {
	mu      sync.Mutex // guards the fields below
	at      []string
	working int
}

// every runs an Every of "job" on a goroutine. length gets the number of a run, from 0, and returns
// how long the run lasts. A run also ends with its context. The end of the test ends Every.
func (w *world) every(s client.Schedule, length func(n int) time.Duration) *worked {
	w.t.Helper()
	b, g := new(worked), w.client()
	ctx, cancel := context.WithCancel(bg)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := g.Every(ctx, "job", s, b.work(w, length)); !errors.Is(err, context.Canceled) {
			w.t.Errorf("Every returns %v, want context.Canceled", err)
		}
	}()
	w.t.Cleanup(func() { cancel(); <-over })
	return b
}

func (b *worked) work(w *world, length func(int) time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		b.mu.Lock()
		n := len(b.at)
		b.at = append(b.at, w.elapsed().String())
		if b.working++; b.working > 1 {
			w.t.Error("two runs of the work overlap")
		}
		b.mu.Unlock()
		select {
		case <-time.After(length(n)):
		case <-ctx.Done():
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.working--
		return nil
	}
}

// drain returns the starts since the last drain.
func (b *worked) drain() string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() { b.at = nil }()
	return fmt.Sprint(b.at)
}

// inside returns how many runs of the work last.
func (b *worked) inside() int {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.working
}

func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func TestEveryFollowsItsSchedule(t *testing.T) {
	for name, test := range map[string]struct {
		schedule client.Schedule
		lengths  []time.Duration // of the first runs; the others last 3 s
		want     string          // the starts within 111 s
	}{
		"rate, from start to start": {
			client.Schedule{InitialDelay: time.Second, Period: 20 * time.Second}, nil,
			"[1s 21s 41s 1m1s 1m21s 1m41s]",
		},
		"rate, with one run for all missed starts": {
			client.Schedule{Period: 10 * time.Second}, []time.Duration{25 * time.Second, 47 * time.Second},
			"[0s 25s 1m12s 1m20s 1m30s 1m40s 1m50s]",
		},
		"delay, from end to start": {
			client.Schedule{FixedDelay: true, Period: 20 * time.Second}, nil,
			"[0s 23s 46s 1m9s 1m32s]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				b := w.every(test.schedule, func(n int) time.Duration {
					if n < len(test.lengths) {
						return test.lengths[n]
					}
					return 3 * time.Second
				})
				time.Sleep(111 * time.Second)
				if got := b.drain(); got != test.want {
					t.Errorf("the work started at %s, want %s", got, test.want)
				}
			})
		})
	}
}

func TestEveryEndsByFinalAndContinuesAfterOtherErrors(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, log := w.logged()
		runs, failure := 0, errors.New("no paper")
		err := g.Every(bg, "job", client.Schedule{Period: time.Minute}, func(context.Context) error {
			if runs++; runs < 5 {
				return failure
			}
			return client.Final(failure)
		})
		if err != failure || runs != 5 || w.elapsed() != 4*time.Minute {
			t.Errorf("Every returns %v after %d runs and %v, want the final error after 5 runs and 4m", err, runs, w.elapsed())
		}
		if got := log(); strings.Count(got, "no paper") != 4 {
			t.Errorf("the log does not have each error once:\n%s", got)
		}
		w.nothingLeft("job")
	})
}

func TestSchedulerStopEndsTheWorkAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		b := new(worked)
		s, err := contend.NewScheduler(w.client().Client, "job", client.Schedule{InitialDelay: time.Second, Period: 10 * time.Second}, b.work(w, always(time.Minute)))
		must(t, err)
		must(t, s.Start())
		time.Sleep(5 * time.Second)
		for range 3 {
			if b.drain(); b.inside() != 1 {
				t.Errorf("%d runs of the work last, want 1", b.inside())
			}
			at := w.elapsed()
			if err := s.Stop(bg); err != nil || b.inside() != 0 || w.elapsed() != at {
				t.Errorf("Stop returns %v while %d runs of the work last, after %v; want nil, 0, at once", err, b.inside(), w.elapsed()-at)
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
		must(t, s.Stop(bg))
	})
}

func TestSchedulerContinuesAfterAPanic(t *testing.T) {
	log := defaultLog(t)
	inWorld(t, func(t *testing.T, w *world) {
		calls := 0
		s, err := contend.NewScheduler(w.client().Client, "job", client.Schedule{Period: time.Second}, func(context.Context) error {
			if calls++; calls == 2 {
				panic("the disk is full")
			}
			return nil
		})
		must(t, err)
		must(t, s.Start())
		time.Sleep(4500 * time.Millisecond)
		if err := s.Stop(bg); err != nil || calls != 5 {
			t.Errorf("Stop returns %v after %d runs of the work, want nil after 5", err, calls)
		}
		if all := w.tenures("job"); len(all) != 1 {
			t.Errorf("the tenures are %v, want one", all)
		}
		if got := log.String(); !strings.Contains(got, "the disk is full") || !strings.Contains(got, "TestSchedulerContinuesAfterAPanic") || !strings.Contains(got, "mutex=job") {
			t.Errorf("the log does not have the panic, its stack and the mutex: %s", got)
		}
	})
}
