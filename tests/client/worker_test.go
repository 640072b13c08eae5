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
	worker.Worker
	w     *world
	g     *testClient
	id    string
	quit  context.CancelFunc
	ended chan error // has the result of Run

	start func(context.Context) error // called by StartWork
	stop  func() error                // called by StopWork

	mu      sync.Mutex // guards the fields below
	lines   []string   // states, and callbacks with "!", since the last drain
	state   worker.State
	working bool
}

// worker returns an idle Worker. The end of the test ends its run.
func (w *world) worker(id string) *testWorker {
	s := &testWorker{w: w, g: w.client(), id: id, quit: func() {}}
	s.start = func(context.Context) error { s.note("start"); return nil }
	s.stop = func() error { s.note("stop"); return nil }
	s.Worker = worker.Worker{
		Client: s.g.Client, Mutex: "job", Changed: s.changed,
		StartWork: func(ctx context.Context) error { return s.start(ctx) },
		StopWork:  func() error { return s.stop() },
	}
	w.t.Cleanup(func() { s.quit() })
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

// expect fails the test unless exactly these states and callbacks were recorded, in this order,
// since the last expect. Callbacks have a "!".
func (s *testWorker) expect(when, lines string) {
	s.w.t.Helper()
	if got := s.drain(); got != lines {
		s.w.t.Errorf("%s: %q, want %q", when, got, lines)
	}
}

func (s *testWorker) drain() string {
	s.w.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.State() != s.state {
		s.w.t.Errorf("State returns %v, want %v, the last reported state", s.State(), s.state)
	}
	lines := strings.Join(s.lines, " ")
	s.lines = nil
	return lines
}

// begin calls Run with a TTL of 10 s and a transition window of 2 s.
func (s *testWorker) begin() {
	ctx, quit := context.WithCancel(bg)
	s.quit, s.ended = quit, make(chan error, 1)
	go func() {
		s.ended <- s.Run(ctx, client.WithID(s.id), client.WithTTL(10*time.Second), client.WithTransition(2*time.Second))
	}()
}

func (s *testWorker) end() {
	s.w.t.Helper()
	s.quit()
	if s.ended != nil {
		must(s.w.t, <-s.ended)
		s.ended = nil
	}
	if s.State() != worker.Idle {
		s.w.t.Errorf("after Run the state is %v, want idle", s.State())
	}
}

func TestWorkerStatesHaveNames(t *testing.T) {
	got := fmt.Sprint(worker.Idle, worker.Acquiring, worker.Working, worker.Renewing, worker.Pausing, worker.Waiting, worker.Releasing, worker.State(7), worker.State(-1))
	if got != "idle acquiring working renewing pausing waiting releasing State(7) State(-1)" {
		t.Errorf("the states are named %s", got)
	}
}

func TestWorkerWorksRenewsAndHandsOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.worker("a"), w.worker("b")
		a.expect("before Run", "")
		a.begin()
		a.expect("running", "acquiring working start!")
		b.begin()
		b.expect("the second worker", "acquiring waiting")
		time.Sleep(time.Second)
		a.expect("subscribed", "renewing working")
		time.Sleep(8 * time.Second)
		a.expect("at the first renewal", "renewing working")
		if err := a.Run(bg); !errors.Is(err, client.ErrInUse) {
			t.Errorf("Run of a running Worker returns %v, want ErrInUse", err)
		}
		b.expect("while the first one works", "")
		a.end()
		a.expect("ended", "pausing stop! releasing idle")
		b.expect("after the release", "working start!")
		b.end()
		w.nothingLeft("job")
		a.begin()
		a.expect("running again", "acquiring working start!")
	})
}

func TestWorkerThatLosesTheMutexPausesAndWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var ctx context.Context
		a, b := w.worker("a"), w.worker("b")
		a.start = func(own context.Context) error { ctx = own; a.note("start"); return nil }
		a.stop = func() error { a.note("stop"); return errors.New("it hangs") } // which changes nothing
		a.begin()
		synctest.Wait()
		b.begin()
		time.Sleep(9 * time.Second)
		a.expect("at work", "acquiring working start! renewing working renewing working")
		w.breakOff("job") // b is next and acquires the mutex
		a.expect("after the break", "renewing pausing stop! waiting")
		if !errors.Is(context.Cause(ctx), client.ErrLost) {
			t.Errorf("the cause is %v, want ErrLost", context.Cause(ctx))
		}
		b.end()
		a.expect("when the mutex is free", "working start!")
		if client.Token(ctx) != 3 {
			t.Errorf("the token is %d, want 3", client.Token(ctx))
		}
	})
}

func TestWorkerWithoutRepliesPausesAndAsksAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.worker("a")
		a.begin()
		a.expect("at work", "acquiring working start!")
		w.stop()
		time.Sleep(11880*time.Millisecond - 1) // 1 % before the end of the lease
		a.expect("before the end of the lease", "renewing")
		time.Sleep(10 * time.Second)
		a.expect("after the end of the lease", "pausing stop! waiting")
		w.begin()
		time.Sleep(20 * time.Second)
		if again := a.drain(); !strings.HasPrefix(again, "working start!") || strings.Contains(again, "pausing") {
			t.Errorf("when the server is back: %q, want working and start!", again)
		}
	})
}

func TestWorkerReleasesIfStartWorkFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		fail := errors.New("no disk")
		a, b := w.worker("a"), w.worker("b")
		a.start = func(context.Context) error { a.note("start"); return fail }
		a.begin()
		a.expect("after StartWork has failed", "acquiring working start! pausing stop! waiting")
		w.nothingLeft("job")
		b.begin()
		b.expect("the other worker", "acquiring working start!")
		time.Sleep(time.Minute)
		a.expect("while the other one works", "")
		fail = nil
		b.end()
		a.expect("after the repair of StartWork", "working start!")
	})
}

func TestStartWorkMayWorkUntilItsContextEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.worker("a")
		a.start = func(ctx context.Context) error {
			a.note("start")
			<-ctx.Done()
			return ctx.Err() // no failure, since the context has ended
		}
		a.begin()
		time.Sleep(9 * time.Second)
		a.expect("at work", "acquiring working start! renewing working renewing working")
		a.end()
		a.expect("ended", "pausing stop! releasing idle")
		if got := w.tenures("job"); len(got) != 1 {
			t.Errorf("there were %d tenures, want 1", len(got))
		}
	})
}

func TestWorkerEndsFromEveryState(t *testing.T) {
	cases := map[string]struct {
		enter func(w *world, a, other *testWorker) // other works
		in    worker.State
		want  string // the states and calls at the end
	}{
		"idle": {func(*world, *testWorker, *testWorker) {}, worker.Idle, ""},
		"acquiring": {func(_ *world, a, other *testWorker) {
			other.end()
			a.g.slow(500*time.Millisecond, 500*time.Millisecond)
			a.begin()
			time.Sleep(time.Second)
		}, worker.Acquiring, "idle"},
		"waiting":  {func(_ *world, a, _ *testWorker) { a.begin(); time.Sleep(time.Second) }, worker.Waiting, "idle"},
		"working":  {func(_ *world, a, other *testWorker) { other.end(); a.begin(); time.Sleep(time.Second) }, worker.Working, "pausing stop! releasing idle"},
		"starting": {func(_ *world, a, other *testWorker) { a.start = slowly(a.start); other.end(); a.begin() }, worker.Working, "pausing stop! releasing idle"},
		"renewing": {func(_ *world, a, other *testWorker) {
			other.end()
			a.begin()
			time.Sleep(8500 * time.Millisecond)
			a.g.slow(0, time.Second)
			time.Sleep(time.Second)
		}, worker.Renewing, "pausing stop! releasing idle"},
		"pausing": {func(w *world, a, other *testWorker) {
			stop := a.stop
			a.stop = func() error { time.Sleep(time.Second); return stop() }
			other.end()
			a.begin()
			time.Sleep(9 * time.Second)
			w.breakOff("job")
			other.begin()
			time.Sleep(500 * time.Millisecond)
		}, worker.Pausing, "stop! releasing idle"},
		"acquiring without a server": {func(w *world, a, other *testWorker) {
			other.end()
			w.stop()
			a.begin()
			time.Sleep(5 * time.Second)
		}, worker.Acquiring, "idle"},
		"waiting since it could not start": {func(_ *world, a, other *testWorker) {
			start := a.start
			a.start = func(ctx context.Context) error { return errors.Join(start(ctx), errors.New("no disk")) }
			other.end()
			a.begin()
			time.Sleep(50 * time.Millisecond)
		}, worker.Waiting, "idle"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a, other := w.worker("a"), w.worker("other")
				other.begin()
				synctest.Wait()
				c.enter(w, a, other)
				synctest.Wait()
				if a.State() != c.in {
					t.Fatalf("before the end, a is %v, want %v", a.State(), c.in)
				}
				a.drain()
				a.end()
				a.expect("ended", c.want)
				a.g.slow(0, 0)
				w.begin()
				time.Sleep(time.Minute)
				a.expect("later", "")
				other.end()
				w.nothingLeft("job")
			})
		})
	}
}

func slowly(start func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := start(ctx)
		time.Sleep(500 * time.Millisecond)
		return err
	}
}
