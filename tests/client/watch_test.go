package clienttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/engine"
)

// watched records what a Watch yields. "=a" is the present state with the owner a, "gap=a" one after
// a gap, "+a" that a has acquired the mutex, "released" that it is free, "!" an error.
type watched struct {
	t    *testing.T
	end  context.CancelFunc
	over chan struct{} // closed when the loop has ended

	mu     sync.Mutex // guards what follows
	seen   []string
	states []client.State
	errs   []error
	pause  time.Duration // of the loop, after each state
}

// watch observes a mutex until the end of the test.
func (g *testClient) watch(t *testing.T, mutex string) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(bg)
	s := &watched{t: t, end: cancel, over: make(chan struct{})}
	go func() {
		defer close(s.over)
		for state, err := range g.Watch(ctx, mutex) {
			time.Sleep(s.add(state, err))
		}
	}()
	t.Cleanup(func() { cancel(); <-s.over })
	synctest.Wait()
	return s
}

func (s *watched) add(state client.State, err error) (pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.seen, s.errs = append(s.seen, "!"), append(s.errs, err)
		return s.pause
	case state.Event == "" && state.Gap:
		s.seen = append(s.seen, "gap="+state.Owner.ID)
	case state.Event == "":
		s.seen = append(s.seen, "="+state.Owner.ID)
	case state.Event == "acquired":
		s.seen = append(s.seen, "+"+state.Owner.ID)
	default:
		s.seen = append(s.seen, state.Event)
		if !state.Owner.IsZero() {
			s.t.Errorf("after %s the owner is %+v, want none", state.Event, state.Owner)
		}
	}
	if n := len(s.states); n > 0 && state.Seq <= s.states[n-1].Seq && !state.Gap {
		s.t.Errorf("the change %d follows the change %d", state.Seq, s.states[n-1].Seq)
	}
	s.states = append(s.states, state)
	return s.pause
}

func (s *watched) setPause(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause = d
}

// drain returns what Watch has yielded since the last call.
func (s *watched) drain() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.seen = nil }()
	return s.seen
}

// want fails the test unless Watch has yielded exactly this since the last call.
func (s *watched) want(want ...string) {
	s.t.Helper()
	if got := s.drain(); !slices.Equal(got, want) {
		s.t.Errorf("Watch has yielded %q, want %q", got, want)
	}
}

func (s *watched) last() client.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[len(s.states)-1]
}

// take makes a contender acquire or renew "job". drop makes it release.
func (g *testClient) take(t *testing.T, id string, ttl time.Duration) uint64 {
	t.Helper()
	r, err := g.acquire(bg, "job", id, ttl)
	if err != nil || r["owner"] != id {
		t.Fatalf("acquire of %s returns %+v, %v", id, r, err)
	}
	return uint64(r["token"].(int64))
}

func (g *testClient) drop(t *testing.T, id string) {
	t.Helper()
	if n, err := g.release(bg, "job", id); n != 1 || err != nil {
		t.Fatalf("release of %s returns %d, %v, want 1", id, n, err)
	}
}

func TestWatchYieldsThePresentStateAndThenEachChange(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		s := w.client().watch(t, "job")
		s.want("=")
		token := g.take(t, "a", time.Minute)
		s.want("+a")
		if got := s.last(); got.Owner.Token != token || got.At.UnixMilli() != time.Now().UnixMilli() {
			t.Errorf("the change is %+v, want token %d and the present time", got, token)
		}
		later := w.client().watch(t, "job")
		later.want("=a")
		if got := later.last().Owner; got.Token != token || time.Until(got.TTLAt) != time.Minute {
			t.Errorf("the present owner is %+v, want a for a minute", got)
		}
		g.drop(t, "a")
		s.want("released")
		g.take(t, "b", time.Second)
		g.take(t, "b", time.Minute) // a renewal is no change
		s.want("+b")
		w.breakOff("job")
		g.take(t, "b", time.Second) // another tenure of the same contender
		s.want("broken", "+b")
		if reason := s.states[len(s.states)-2].Reason; reason != "the test" {
			t.Errorf("the reason is %q, want that of BREAK", reason)
		}
		must(t, g.rdb.Do(bg, "simba.acquire", "job", "waiter", 1000).Err()) // a waiter is no change
		time.Sleep(time.Second)
		s.want("expired")
		time.Sleep(time.Hour)
		s.want()
		if q := w.queue("job"); len(q) != 0 {
			t.Errorf("the queue is %q, want no watcher in it", q)
		}
	})
}

// The changes come faster than replies, in a loop that is slow at times, and while connections break.
func TestWatchMissesNoChange(t *testing.T) {
	for name, disturb := range map[string]func(*testClient, *watched, int){
		"slow network": func(g *testClient, _ *watched, _ int) { g.slow(25*time.Millisecond, 25*time.Millisecond) },
		"slow loop":    func(_ *testClient, s *watched, i int) { s.setPause(time.Duration(i%200) * time.Millisecond) },
		"broken connections": func(g *testClient, _ *watched, i int) {
			g.slow(0, time.Millisecond)
			if i%50 == 0 {
				g.cut()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				watching, g, random := w.client(), w.client(), rand.New(rand.NewPCG(1, 2))
				s := watching.watch(t, "job")
				want := []string{"="}
				for i := range 300 {
					disturb(watching, s, i)
					id := fmt.Sprint("c", i)
					if i%10 == 9 {
						g.take(t, id, 30*time.Millisecond)
						time.Sleep(30 * time.Millisecond)
						want = append(want, "+"+id, "expired")
					} else {
						g.take(t, id, time.Minute)
						time.Sleep(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
						g.drop(t, id)
						want = append(want, "+"+id, "released")
					}
				}
				s.setPause(0)
				time.Sleep(time.Minute)
				got := slices.DeleteFunc(s.drain(), func(line string) bool { return line == "!" })
				if !slices.Equal(got, want) {
					t.Errorf("Watch has yielded %q, want %q", got, want)
				}
			})
		})
	}
}

// The first read has two replies. Whatever happens between them, no change follows twice, and none
// is missing.
func TestWatchBeginsDuringChanges(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		for d := range 40 {
			g.take(t, "a", time.Hour)
			watching := w.client()
			watching.slow(10*time.Millisecond, 10*time.Millisecond)
			s := watching.watch(t, "job")
			time.Sleep(time.Duration(d) * 2 * time.Millisecond)
			g.drop(t, "a")
			time.Sleep(time.Second)
			if got := s.drain(); !slices.Equal(got, []string{"=a", "released"}) && !slices.Equal(got, []string{"="}) {
				t.Errorf("Watch begins %d ms before a change, and yields %q", 2*d, got)
			}
			s.end()
		}
	})
}

func TestWatchResumesAfterAFault(t *testing.T) {
	for name, fault := range map[string]func(w *world, g *testClient, meanwhile func()){
		"connections frozen": func(_ *world, g *testClient, meanwhile func()) { g.freeze(); meanwhile() },
		"silence": func(_ *world, g *testClient, meanwhile func()) {
			g.silence()
			meanwhile()
			time.Sleep(20 * time.Second)
			g.heal()
		},
		"connections refused": func(w *world, g *testClient, meanwhile func()) {
			g.connect(nil)
			g.cut()
			meanwhile()
			time.Sleep(20 * time.Second)
			g.connect(w.server)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				g := w.client()
				g.take(t, "a", time.Hour)
				watching := w.client()
				s := watching.watch(t, "job")
				s.want("=a")
				watching.slow(0, time.Millisecond) // a cut then loses notices in flight
				fault(w, watching, func() {
					g.drop(t, "a")
					g.take(t, "b", time.Hour)
				})
				time.Sleep(10 * time.Second)
				got := s.drain()
				if text := strings.Join(got, " "); text != "released +b" && text != "! released +b" {
					t.Errorf("Watch has yielded %q, want each change and at most one error", got)
				}
				g.drop(t, "b") // the client has subscribed again
				time.Sleep(5 * time.Millisecond)
				s.want("released")
			})
		})
	}
}

// Where events do not continue, Watch yields the present state, and marks it.
func TestWatchMarksAGap(t *testing.T) {
	t.Run("a server without its data", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			g := w.client()
			for range 10 {
				g.take(t, "a", time.Minute)
				g.drop(t, "a")
			}
			g.take(t, "a", time.Hour)
			s := w.client().watch(t, "job")
			s.want("=a")
			w.replace(engine.Recovery{}) // tokens and seq begin at 1 again
			time.Sleep(5 * time.Second)
			if got := s.drain(); got[len(got)-1] != "gap=" {
				t.Errorf("Watch has yielded %q, want a gap, and a free mutex", got)
			}
			g = w.client()
			g.take(t, "b", time.Minute)
			g.drop(t, "b")
			s.want("+b", "released")
		})
	})
	t.Run("more changes than the server keeps", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			s := w.client().watch(t, "job")
			for _, n := range []int{4000, 6000} { // the server keeps 10,000 changes
				s.setPause(time.Second)
				w.change("job", 1)
				synctest.Wait() // the loop pauses
				w.change("job", n)
				s.setPause(0)
				time.Sleep(time.Minute)
				got := s.drain()
				if missed := slices.Contains(got, "gap="); missed != (n == 6000) || !missed && len(got) != 1+2+2*n {
					t.Errorf("after %d changes Watch has yielded %d states, a gap: %v", 2*n, len(got), missed)
				}
			}
		})
	})
	t.Run("the begin of a tenure that the server does not keep", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			g, watching, over := w.client(), w.client(), new(atomic.Bool)
			s := watching.watch(t, "job")
			s.setPause(time.Second)
			w.change("job", 1)
			synctest.Wait() // the loop pauses
			watching.rdb.AddHook(refusingCount{refusing{refusal("NOPERM of the test"), over}})
			g.take(t, "b", time.Hour)
			w.change("other", 5000) // the server keeps 10,000 changes
			g.drop(t, "b")
			s.setPause(0)
			time.Sleep(10 * time.Second)
			s.want("=", "+a", "released", "!")
			over.Store(true)
			time.Sleep(2 * time.Second)
			s.want("gap=")
		})
	})
	// INFO is in @dangerous, so most users may not ask for the run.
	t.Run("a user without INFO", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.allow(map[string]string{"bob": "~* +@all -info"})
			w.client().take(t, "a", time.Hour)
			g, log := w.loggedOf("bob")
			s := g.watch(t, "job")
			s.want("=a")
			w.client().drop(t, "a")
			w.client().take(t, "a", time.Hour)
			s.want("released", "+a")
			now := w.engine.Stats()
			w.replace(engine.Recovery{Token: now.Token, Seq: now.Seq})
			time.Sleep(20 * time.Second)
			if got := s.drain(); got[len(got)-1] != "gap=" {
				t.Errorf("Watch has yielded %q, want a gap, and a free mutex", got)
			}
			time.Sleep(time.Hour)
			s.want()
			if got := log(); strings.Count(got, "'info' command") != 1 {
				t.Errorf("the log does not have the refusal of INFO once:\n%s", got)
			}
		})
	})
}

// refusingCount refuses reads of the present state.
type refusingCount struct{ refusing }

func (r refusingCount) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	refuse := r.refusing.ProcessHook(next)
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.Contains(cmd.Args(), any("count")) {
			return refuse(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

// change makes n tenures of a mutex at once.
func (w *world) change(mutex string, n int) {
	w.t.Helper()
	for range n {
		_, _, err := w.engine.Acquire(bg, simba.AcquireRequest{Mutex: mutex, Contender: "a", TTL: time.Hour})
		must(w.t, err)
		_, seq, err := w.engine.Release(bg, simba.ReleaseRequest{Mutex: mutex, Contender: "a"})
		must(w.t, err)
		must(w.t, w.engine.Commit(seq))
	}
}

func TestWatchWithoutSubscribePolls(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.allow(map[string]string{"bob": "~* +@all -subscribe"})
		g := w.client()
		watching, log := w.loggedOf("bob")
		s := watching.watch(t, "job")
		s.want("=")
		for range 5 {
			time.Sleep(time.Minute)
			g.take(t, "a", time.Hour)
			time.Sleep(time.Second)
			g.drop(t, "a")
			time.Sleep(time.Second)
			s.want("+a", "released")
		}
		if got := log(); strings.Count(got, "NOPERM") != 1 || !strings.Contains(got, "refuses SUBSCRIBE") {
			t.Errorf("the log does not have the refusal of SUBSCRIBE once:\n%s", got)
		}
	})
}

func TestWatchYieldsAnErrorOnceAndTriesAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		n, over := g.countCommands(), new(atomic.Bool) // two commands a read
		g.rdb.AddHook(refusing{refusal("NOPERM of the test"), over})
		s := g.watch(t, "job")
		time.Sleep(10 * time.Minute)
		s.want("!")
		if got := n.Load(); got < 2*250 || got > 2*350 {
			t.Errorf("Watch sent %d commands in ten minutes, want two each 2 s", got)
		}
		over.Store(true)
		time.Sleep(2 * time.Second)
		s.want("=")
		for range 2 { // another outage is another error
			w.stop()
			time.Sleep(time.Minute)
			s.want("!")
			w.begin()
			time.Sleep(3 * time.Second)
			s.want("gap=")
		}
		if text := s.errs[0].Error(); text != "NOPERM of the test" || !errors.Is(s.errs[1], client.ErrUnavailable) {
			t.Errorf("the errors are %v, want the refusal, and ErrUnavailable", s.errs)
		}
	})
}

func TestWatchEnds(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*testClient, *watched)
		want error // yielded last; nil = none
	}{
		"with its context":         {func(_ *testClient, s *watched) { s.end() }, nil},
		"with the Client":          {func(g *testClient, _ *watched) { _ = g.Close() }, client.ErrClosed},
		"with the go-redis client": {func(g *testClient, _ *watched) { _ = g.rdb.Close(); time.Sleep(watchEvery) }, client.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				g := w.client()
				s := g.watch(t, "job")
				s.want("=")
				test.end(g, s)
				at := w.elapsed()
				<-s.over
				if w.elapsed() != at {
					t.Errorf("Watch ends %v later, want at once", w.elapsed()-at)
				}
				if test.want == nil {
					s.want()
				} else if s.want("!"); !errors.Is(s.errs[0], test.want) {
					t.Errorf("Watch yields %v, want %v", s.errs[0], test.want)
				}
			})
		})
	}
}
