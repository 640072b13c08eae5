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
	"github.com/simba-resp/simba-resp/client/worker"
)

// testWorker is a Worker of "job" that records its states and callbacks.
type testWorker struct {
	*worker.Worker
	*testClient
	w *world

	start func(context.Context) error // called by StartWork
	stop  func() error                // called by StopWork

	mu      sync.Mutex // guards the fields below
	lines   []string   // states, and callbacks with "!", since the last drain
	state   worker.State
	working bool
}

// worker returns an idle Worker with a TTL of 10 s and a transition window of 2 s. The end of the
// test stops the Worker.
func (w *world) worker(id string, changes ...func(*worker.Config)) *testWorker {
	w.t.Helper()
	s := &testWorker{testClient: w.client(), w: w}
	s.start = func(ctx context.Context) error { s.note("start"); return nil }
	s.stop = func() error { s.note("stop"); return nil }
	cfg := worker.Config{
		Mutex: "job", ID: id, TTL: 10 * time.Second, Transition: 2 * time.Second,
		StartWork: func(ctx context.Context) error { return s.start(ctx) },
		StopWork:  func() error { return s.stop() },
		Changed:   s.changed,
	}
	for _, change := range changes {
		change(&cfg)
	}
	var err error
	if s.Worker, err = worker.New(s.Client, cfg); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = s.Stop(bg) })
	return s
}

func (s *testWorker) note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line+"!")
	if working := line == "start"; working == s.working {
		s.w.t.Errorf("%s is called twice in a row", line)
	} else {
		s.working = working
	}
}

func (s *testWorker) changed(from, to worker.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from != s.state {
		s.w.t.Errorf("Changed reports %v to %v, but the last state was %v", from, to, s.state)
	}
	s.state = to
	s.lines = append(s.lines, to.String())
}

// drain returns the states and the callbacks since the last drain. Two goroutines record them, so
// the order of a state and a callback is random.
func (s *testWorker) drain() (states, calls string) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var a, b []string
	for _, l := range s.lines {
		if strings.HasSuffix(l, "!") {
			b = append(b, strings.TrimSuffix(l, "!"))
		} else {
			a = append(a, l)
		}
	}
	s.lines = nil
	return strings.Join(a, " "), strings.Join(b, " ")
}

// expect fails the test unless exactly these states and callbacks were recorded since the last
// drain.
func (s *testWorker) expect(when, states, calls string) {
	s.w.t.Helper()
	gotStates, gotCalls := s.drain()
	if gotStates != states || gotCalls != calls {
		s.w.t.Errorf("%s: states %q and calls %q,\nwant %q and %q", when, gotStates, gotCalls, states, calls)
	}
	if last := states[strings.LastIndex(states, " ")+1:]; last != "" && s.State().String() != last {
		s.w.t.Errorf("%s: State returns %v, want %s, the last reported state", when, s.State(), last)
	}
}

func (s *testWorker) begin() {
	s.w.t.Helper()
	must(s.w.t, s.Start())
}

func (s *testWorker) end() {
	s.w.t.Helper()
	if err := s.Stop(bg); err != nil {
		s.w.t.Error(err)
	}
}

func TestWorkerStatesHaveNames(t *testing.T) {
	got := fmt.Sprint(worker.Idle, worker.Acquiring, worker.Working, worker.Renewing, worker.Pausing, worker.Waiting, worker.Releasing, worker.State(7), worker.State(-1), client.FixedRate, client.FixedDelay)
	if got != "idle acquiring working renewing pausing waiting releasing State(7) State(-1) FixedRate FixedDelay" {
		t.Errorf("the states and strategies are named %s", got)
	}
}

func TestWorkerWorksRenewsAndHandsOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.worker("a"), w.worker("b")
		a.expect("before Start", "", "")
		a.begin()
		a.expect("started", "acquiring working", "start")
		b.begin()
		// b tries again when its two channels are subscribed to: once, or once for each channel.
		if states, calls := b.drain(); strings.Count(states, "acquiring waiting") < 2 || strings.Count(states, " ") > 5 || calls != "" {
			t.Errorf("a second worker reports the states %q and the calls %q, want at least two attempts and no call", states, calls)
		}
		time.Sleep(1500 * time.Millisecond)
		a.expect("subscribed", "renewing working", "")
		time.Sleep(8 * time.Second)
		a.expect("at the first renewal", "renewing working", "")
		if err := a.Start(); !errors.Is(err, client.ErrInUse) {
			t.Errorf("Start of a running Worker returns %v, want ErrInUse", err)
		}
		b.drain()
		a.end()
		a.expect("stopped", "pausing releasing idle", "stop")
		b.expect("after its notice", "acquiring working", "start")
		b.end()
		w.nothingLeft("job")
		b.drain()
		a.begin()
		a.expect("started again", "acquiring working", "start")
	})
}

func TestWorkerResignHandsOffToTheNext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.worker("a"), w.worker("b")
		a.begin()
		synctest.Wait()
		b.begin()
		synctest.Wait()
		for _, x := range []*testWorker{a, b, a} {
			if w.owner("job") != x.ID() || x.State() != worker.Working {
				t.Fatalf("%q owns the mutex, and %s is %v, want the owner working", w.owner("job"), x.ID(), x.State())
			}
			x.Resign()
			x.Resign() // no effect without an ownership
			synctest.Wait()
			if x.State() != worker.Waiting {
				t.Errorf("%s is %v after Resign, want waiting", x.ID(), x.State())
			}
		}
	})
}

func TestWorkerThatLosesTheMutexPausesAndWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var ctx context.Context
		a := w.worker("a")
		a.start = func(own context.Context) error { ctx = own; a.note("start"); return nil }
		a.begin()
		synctest.Wait()
		b := w.worker("b")
		b.begin()
		time.Sleep(9 * time.Second)
		a.expect("at work", "acquiring working renewing working renewing working", "start")
		w.breakOff("job") // b is next and acquires the mutex
		a.expect("after the break", "renewing pausing waiting acquiring waiting", "stop")
		if !errors.Is(context.Cause(ctx), client.ErrLost) {
			t.Errorf("the cause is %v, want ErrLost", context.Cause(ctx))
		}
		b.end()
		a.expect("after its notice", "acquiring working", "start")
		if client.Token(ctx) != 3 {
			t.Errorf("the token is %d, want 3", client.Token(ctx))
		}
	})
}

func TestWorkerWithoutRepliesPausesAndAsksAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.worker("a")
		a.begin()
		a.expect("at work", "acquiring working", "start")
		w.stop()
		time.Sleep(11880*time.Millisecond - 1)
		if states, calls := a.drain(); strings.Trim(states, "renwig ") != "" || calls != "" || a.State() != worker.Renewing {
			t.Errorf("before the end of the lease: states %q, calls %q, want renewing and no call", states, calls)
		}
		time.Sleep(10 * time.Second)
		states, calls := a.drain()
		if !strings.HasPrefix(states, "pausing waiting acquiring waiting acquiring") || calls != "stop" {
			t.Errorf("after the end of the lease: states %q, calls %q, want pausing, waiting, acquiring, and stop", states, calls)
		}
		w.begin()
		time.Sleep(20 * time.Second)
		if _, calls := a.drain(); calls != "start" || a.State() != worker.Working && a.State() != worker.Renewing {
			t.Errorf("when the server is back, the state is %v, the calls are %q, want working and start", a.State(), calls)
		}
	})
}

func TestWorkerResignsForATTLIfStartWorkFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		fail := errors.New("no disk")
		a := w.worker("a", func(cfg *worker.Config) {
			start := cfg.StartWork
			cfg.StartWork = func(ctx context.Context) error { return errors.Join(start(ctx), fail) }
		})
		a.begin()
		a.expect("after StartWork has failed", "acquiring working pausing releasing waiting", "start stop")
		w.nothingLeft("job")
		b := w.worker("b")
		b.begin()
		b.expect("the other worker", "acquiring working", "start")
		time.Sleep(10*time.Second - 1)
		a.expect("before a TTL is over", "", "")
		time.Sleep(time.Nanosecond)
		a.expect("after the TTL", "acquiring waiting acquiring waiting", "")
		fail = nil
		b.end()
		a.expect("after the repair of StartWork", "acquiring working", "start")
	})
}

func TestWorkerReleasesIfStopWorkFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.worker("a", func(cfg *worker.Config) {
			stop := cfg.StopWork
			cfg.StopWork = func() error { return errors.Join(stop(), errors.New("it hangs")) }
		})
		a.begin()
		a.expect("at work", "acquiring working", "start")
		w.breakOff("job")
		time.Sleep(8 * time.Second)
		a.expect("after the break", "renewing pausing waiting acquiring working", "stop start")
		a.end()
		a.expect("stopped", "pausing releasing idle", "stop")
		w.nothingLeft("job")
	})
}

func TestStartWorkMayWorkUntilItsContextEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.worker("a", func(cfg *worker.Config) {
			start := cfg.StartWork
			cfg.StartWork = func(ctx context.Context) error {
				_ = start(ctx)
				<-ctx.Done()
				return ctx.Err() // no failure, since the context has ended
			}
		})
		a.begin()
		time.Sleep(time.Hour)
		if got := w.tenures("job"); len(got) != 1 {
			t.Errorf("there were %d tenures, want 1", len(got))
		}
		a.drain()
		a.end()
		a.expect("stopped", "pausing releasing idle", "stop")
	})
}

func TestStopCleansUpFromEveryState(t *testing.T) {
	cases := map[string]struct {
		enter func(w *world, a, other *testWorker) // other works
		in    worker.State
		want  string // the states after Stop
		calls string
	}{
		"idle": {func(*world, *testWorker, *testWorker) {}, worker.Idle, "", ""},
		"acquiring": {func(_ *world, a, other *testWorker) {
			other.end()
			a.slow(500*time.Millisecond, 500*time.Millisecond)
			a.begin()
			time.Sleep(time.Second)
		}, worker.Acquiring, "releasing idle", ""},
		"waiting":  {func(_ *world, a, _ *testWorker) { a.begin(); time.Sleep(time.Second) }, worker.Waiting, "releasing idle", ""},
		"working":  {func(_ *world, a, other *testWorker) { other.end(); a.begin(); time.Sleep(time.Second) }, worker.Working, "pausing releasing idle", "stop"},
		"starting": {func(_ *world, a, other *testWorker) { a.start = slowly(a.start); other.end(); a.begin() }, worker.Working, "pausing releasing idle", "stop"},
		"renewing": {func(_ *world, a, other *testWorker) {
			other.end()
			a.begin()
			time.Sleep(8500 * time.Millisecond)
			a.slow(0, time.Second)
			time.Sleep(time.Second)
		}, worker.Renewing, "pausing releasing idle", "stop"},
		"pausing": {func(w *world, a, other *testWorker) {
			stop := a.stop
			a.stop = func() error { time.Sleep(time.Second); return stop() }
			other.end()
			a.begin()
			time.Sleep(9 * time.Second)
			w.breakOff("job")
			other.begin()
			time.Sleep(500 * time.Millisecond)
		}, worker.Pausing, "releasing idle", "stop"},
		"waiting without a server": {func(w *world, a, other *testWorker) {
			other.end()
			w.stop()
			a.begin()
			time.Sleep(5 * time.Second)
			w.begin()
		}, -1, "releasing idle", ""},
		"waiting since it could not start": {func(_ *world, a, other *testWorker) {
			start := a.start
			a.start = func(ctx context.Context) error { return errors.Join(start(ctx), errors.New("no disk")) }
			other.end()
			a.begin()
			time.Sleep(time.Second)
		}, worker.Waiting, "releasing idle", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a, other := w.worker("a"), w.worker("other")
				other.begin()
				synctest.Wait()
				c.enter(w, a, other)
				synctest.Wait()
				if a.State() != c.in && c.in >= 0 {
					t.Fatalf("before Stop, a is %v, want %v", a.State(), c.in)
				}
				a.drain()
				a.end()
				a.expect("stopped", c.want, c.calls)
				if a.State() != worker.Idle {
					t.Errorf("a is %v, want idle", a.State())
				}
				a.slow(0, 0)
				time.Sleep(time.Minute)
				a.expect("later", "", "")
				other.end()
				w.nothingLeft("job")
			})
		})
	}
}

func slowly(start func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := start(ctx)
		time.Sleep(time.Second)
		return err
	}
}

func TestStopOfAWorkerWaitsNoLongerThanItsContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.worker("a")
		a.begin()
		time.Sleep(time.Second)
		a.silence()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if err := a.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) || a.State() != worker.Releasing {
			t.Errorf("Stop returns %v, and a is %v; want context.DeadlineExceeded and releasing", err, a.State())
		}
		a.heal()
		a.end()
		if a.State() != worker.Idle {
			t.Errorf("a is %v, want idle", a.State())
		}
		w.nothingLeft("job")
	})
}
