package clienttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/engine"
)

// changes records the changes that an Observer reports, as "before→after".
type changes struct {
	mu     sync.Mutex // guards the fields below
	seen   []string
	states []client.State
}

func (s *changes) add(st client.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, st.Before.ID+"→"+st.After.ID)
	s.states = append(s.states, st)
}

func (s *changes) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.states)
}

// want fails the test unless the Observer has reported exactly these changes since the last call.
func (s *changes) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.seen, want) {
		t.Errorf("the Observer has reported %q, want %q", s.seen, want)
	}
	s.seen = nil
}

// observe starts an Observer, and stops it before the world ends.
func observe(t *testing.T, g *testClient) (*client.Observer, *changes) {
	t.Helper()
	s := new(changes)
	o, err := g.NewObserver(client.ObserverConfig{Mutex: "job", OnChange: s.add})
	must(t, err)
	must(t, o.Start())
	t.Cleanup(func() {
		if err := o.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return o, s
}

// take makes a contender acquire or renew the mutex. drop makes it release.
func (g *testClient) take(t *testing.T, id string, ttl time.Duration) uint64 {
	t.Helper()
	r, err := g.acquire(context.Background(), "job", id, ttl)
	if err != nil || r["owner"] != id {
		t.Fatalf("acquire of %s returns %+v, %v", id, r, err)
	}
	return uint64(r["token"].(int64))
}

func (g *testClient) drop(t *testing.T, id string) {
	t.Helper()
	if n, err := g.release(context.Background(), "job", id); n != 1 || err != nil {
		t.Fatalf("release of %s returns %d, %v, want 1", id, n, err)
	}
}

func TestObserverReportsEachChangeOnceInOrder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		token := g.take(t, "a", time.Minute)
		o, s := observe(t, w.client())
		s.want(t, "→a")
		if got := o.Owner(); got.ID != "a" || got.Token != token || time.Until(got.TTLAt) != time.Minute {
			t.Errorf("Owner returns %+v, want a for a minute", got)
		}
		g.drop(t, "a")
		s.want(t, "a→")
		if got := o.Owner(); !got.IsZero() {
			t.Errorf("Owner returns %+v, want no owner", got)
		}
		g.take(t, "b", time.Second)
		s.want(t, "→b")
		g.take(t, "b", time.Minute) // the Observer does not report a renewal
		s.want(t)
		w.breakOff("job")
		g.take(t, "b", time.Second) // another tenure of the same contender
		s.want(t, "b→", "→b")
		time.Sleep(time.Second)
		s.want(t, "b→")
		for i := 1; i < len(s.states); i++ {
			if s.states[i].Before.Token != s.states[i-1].After.Token || s.states[i].Mutex != "job" {
				t.Errorf("the change %+v does not follow %+v", s.states[i], s.states[i-1])
			}
		}
	})
}

func TestObserverReportsNoticesOfASlowFirstQuery(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		observing, g := w.client(), w.client()
		_, s := observe(t, observing)
		time.Sleep(queryEvery - time.Second/2)
		observing.slow(time.Second, 0)
		time.Sleep(time.Second) // the query has not reached the server
		g.take(t, "a", time.Minute)
		g.drop(t, "a")
		g.take(t, "b", time.Minute)
		time.Sleep(queryEvery)
		s.want(t, "→", "→a", "a→", "→b")
	})
}

func TestObserverDoesNotContend(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		observe(t, w.client())
		g := w.client()
		g.take(t, "a", time.Minute)
		time.Sleep(2 * time.Minute)
		if q := w.queue("job"); len(q) != 0 {
			t.Errorf("the queue is %q, want no Observer in it", q)
		}
		for _, e := range w.history("job") {
			if e.Owner != "a" {
				t.Errorf("the Observer has caused the event %+v", e)
			}
		}
	})
}

func TestObserverKeepsTheWindowsOfAnOwnerThatRenews(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		g.take(t, "a", 10*time.Second)
		o, s := observe(t, w.client())
		for range 20 {
			time.Sleep(6 * time.Second)
			g.take(t, "a", 10*time.Second)
			if got := o.Owner(); got.ID != "a" || got.TransitionAt.Before(time.Now()) {
				t.Fatalf("after %v Owner returns %+v, want a", w.elapsed(), got)
			}
		}
		s.want(t, "→a")
	})
}

func TestObserverQueriesAfterEachResubscription(t *testing.T) {
	for name, fault := range map[string]func(w *world, g *testClient, meanwhile func()){
		"connection cut": func(_ *world, g *testClient, meanwhile func()) {
			g.cut()
			meanwhile()
		},
		"silence": func(_ *world, g *testClient, meanwhile func()) {
			g.silence()
			meanwhile()
			time.Sleep(20 * time.Second)
			g.heal()
		},
		"connections frozen": func(_ *world, g *testClient, meanwhile func()) {
			g.freeze()
			meanwhile()
			time.Sleep(20 * time.Second)
		},
		"connections refused": func(w *world, g *testClient, meanwhile func()) {
			g.connect(nil)
			g.cut()
			meanwhile()
			time.Sleep(20 * time.Second)
			g.connect(w.server)
		},
		"server restarted": func(w *world, _ *testClient, meanwhile func()) {
			meanwhile()
			w.stop()
			time.Sleep(20 * time.Second)
			w.begin()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				g := w.client()
				g.take(t, "a", time.Hour)
				observing := w.client()
				o, s := observe(t, observing)
				s.want(t, "→a")
				observing.slow(0, time.Millisecond) // a cut then loses notices in flight
				fault(w, observing, func() {
					g.drop(t, "a")
					g.take(t, "b", time.Hour)
				})
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if o.Owner().ID != "b" || len(s.seen) > 3 {
					t.Errorf("the Observer has reported %q, want at most 3 changes and the owner b", s.seen)
				}
				s.seen = nil
				w.client().drop(t, "b") // the Observer has subscribed again
				time.Sleep(time.Millisecond)
				s.want(t, "b→")
			})
		})
	}
}

// A server that has lost its data may send smaller tokens than before.
func TestObserverFollowsAServerThatCountsAnew(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		for range 10 {
			g.take(t, "a", time.Minute)
			g.drop(t, "a")
		}
		g.take(t, "a", time.Minute)
		_, s := observe(t, w.client())
		s.want(t, "→a")
		w.replace(engine.Recovery{})
		time.Sleep(5 * time.Second)
		s.want(t, "a→")
		g = w.client()
		g.take(t, "b", time.Minute)
		s.want(t, "→b")
		g.drop(t, "b")
		s.want(t, "b→")
	})
}

func TestObserverReportsOwnersWithoutNotices(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		observing, g := w.lateClient(0), w.client()
		observing.losing.Store(true)
		o, s := observe(t, observing.testClient)
		time.Sleep(3 * time.Second) // Timeout
		s.want(t, "→")
		g.take(t, "a", time.Minute)
		time.Sleep(queryEvery)
		s.want(t, "→a")
		g.drop(t, "a")
		g.take(t, "a", time.Minute) // another tenure
		time.Sleep(queryEvery)
		s.want(t, "a→a")
		g.take(t, "a", 5*time.Second)
		time.Sleep(2 * queryEvery)
		s.want(t, "a→")
		if !o.Owner().IsZero() {
			t.Errorf("Owner returns %+v, want no owner", o.Owner())
		}
	})
}

func TestObserverQueriesAtTheEndOfALease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		observing, g := w.lateClient(0), w.client()
		g.take(t, "a", 2*time.Second)
		_, s := observe(t, observing.testClient)
		s.want(t, "→a")
		observing.losing.Store(true) // the notice of the end is lost
		time.Sleep(2*time.Second + aheadQueries*aheadPause)
		s.want(t, "a→")
	})
}

func TestObserverIgnoresForeignMessages(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		g.take(t, "a", time.Minute)
		o, s := observe(t, w.client())
		for _, payload := range []string{"", "nonsense", "{}", `{"event":"fallen","owner":"x","token":9}`, `{"event":"released","owner":"a","token":77}`, `{"token":-1}`} {
			must(t, g.rdb.Publish(t.Context(), simba.EventChannel("job"), payload).Err())
		}
		s.want(t, "→a")
		if o.Owner().ID != "a" {
			t.Errorf("Owner returns %+v, want a", o.Owner())
		}
		g.drop(t, "a")
		s.want(t, "a→")
		late := fmt.Sprintf(`{"event":"acquired","owner":"a","token":%d}`, s.states[0].After.Token)
		must(t, g.rdb.Publish(t.Context(), simba.EventChannel("job"), late).Err())
		s.want(t) // the Observer has reported the end already
	})
}

func TestSlowObserverReportsEveryChange(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var s changes
		running := false
		o, err := w.client().NewObserver(client.ObserverConfig{Mutex: "job", OnChange: func(st client.State) {
			if running {
				t.Error("two calls of OnChange run at a time")
			}
			running = true
			time.Sleep(time.Second)
			s.add(st)
			running = false
		}})
		must(t, err)
		must(t, o.Start())
		g := w.client()
		time.Sleep(time.Second) // the first call has returned
		want := []string{"→"}
		for i := range 5 {
			id := fmt.Sprint("c", i)
			g.take(t, id, time.Minute)
			g.drop(t, id)
			want = append(want, "→"+id, id+"→")
		}
		time.Sleep(time.Minute)
		s.want(t, want...)
		must(t, o.Stop(t.Context()))
	})
}

func TestObserverQueriesAfterTooManyNotices(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var s changes
		var slow sync.Once
		o, err := w.client().NewObserver(client.ObserverConfig{Mutex: "job", OnChange: func(st client.State) {
			s.add(st)
			slow.Do(func() { time.Sleep(time.Minute) })
		}})
		must(t, err)
		must(t, o.Start())
		g := w.client()
		synctest.Wait()
		for range maxEvents {
			g.take(t, "a", time.Minute)
			g.drop(t, "a")
		}
		g.take(t, "last", time.Hour)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(s.states); n > maxEvents+3 || o.Owner().ID != "last" {
			t.Errorf("OnChange was called %d times, and the last owner is %+v", n, o.Owner())
		}
		must(t, o.Stop(t.Context()))
	})
}

func TestObserverReportsNothingAfterStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		o, s := observe(t, w.client())
		g.take(t, "a", time.Minute)
		s.want(t, "→", "→a")
		must(t, o.Stop(t.Context()))
		g.drop(t, "a")
		g.take(t, "b", time.Minute)
		time.Sleep(time.Minute)
		s.want(t)
		if o.Owner().ID != "a" {
			t.Errorf("Owner of a stopped Observer returns %+v, want a", o.Owner())
		}
		g.take(t, "c", time.Minute)
		must(t, o.Start())
		s.want(t, "a→c") // one report of all changes since the stop
	})
}

func TestObserverDropsQueuedNoticesAfterStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		observing, g := w.client(), w.client()
		o, s := observe(t, observing)
		s.want(t, "→")
		observing.slow(time.Second, 0)
		g.take(t, "a", time.Minute)
		synctest.Wait() // the notice has arrived, and the query of the windows is in flight
		must(t, o.Stop(t.Context()))
		time.Sleep(time.Minute)
		s.want(t)
	})
}

func TestObserverStopWaitsForOnChangeUntilItsContextEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		var s changes
		o, err := w.client().NewObserver(client.ObserverConfig{Mutex: "job", OnChange: func(st client.State) {
			time.Sleep(time.Minute)
			s.add(st)
		}})
		must(t, err)
		if err := o.Stop(t.Context()); err != nil {
			t.Errorf("Stop before Start returns %v", err)
		}
		g.take(t, "a", time.Hour)
		must(t, o.Start())
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := o.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop during OnChange returns %v, want context.DeadlineExceeded", err)
		}
		if err := o.Start(); !errors.Is(err, client.ErrInUse) {
			t.Errorf("Start during OnChange returns %v, want ErrInUse", err)
		}
		g.drop(t, "a")
		began := time.Now()
		if err := o.Stop(t.Context()); err != nil || time.Since(began) != 59*time.Second {
			t.Errorf("Stop returns %v after %v, want nil after 59s", err, time.Since(began))
		}
		s.want(t, "→a")
	})
}

func TestObserverStopsDuringAQuery(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		observing := w.client()
		observing.silence()
		o, _ := observe(t, observing)
		time.Sleep(time.Second)
		began := time.Now()
		if err := o.Stop(t.Context()); err != nil || time.Since(began) != 0 {
			t.Errorf("Stop returns %v after %v, want nil at once", err, time.Since(began))
		}
		must(t, o.Start())
		if err := o.Start(); !errors.Is(err, client.ErrInUse) {
			t.Errorf("Start of a started Observer returns %v, want ErrInUse", err)
		}
	})
}

func TestObserverFirstReportsAFreeMutex(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		o, s := observe(t, w.client())
		s.want(t, "→")
		time.Sleep(time.Minute)
		s.want(t)
		g.take(t, "a", time.Hour)
		s.want(t, "→a")
		for range 2 { // each start reports the present owner
			time.Sleep(time.Minute)
			must(t, o.Stop(t.Context()))
			must(t, o.Start())
			s.want(t, "a→a")
		}
		if got := s.states[len(s.states)-1].After; time.Until(got.TTLAt) != 58*time.Minute {
			t.Errorf("the last change has the owner %+v, want 58 minutes until ttl_at", got)
		}
	})
}

func TestObserverReportsWithoutASubscriptionAfterTheTimeout(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		observing := w.lateClient(0)
		observing.losing.Store(true) // no SUBSCRIBE gets a reply
		_, s := observe(t, observing.testClient)
		time.Sleep(timeout - time.Millisecond)
		s.want(t)
		time.Sleep(time.Millisecond)
		s.want(t, "→")
	})
}

func TestObserverRunEndsWithItsContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var s changes
		o, err := w.client().NewObserver(client.ObserverConfig{Mutex: "job", OnChange: func(st client.State) {
			time.Sleep(time.Minute)
			s.add(st)
		}})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- o.Run(ctx) }()
		synctest.Wait()
		if err := o.Run(t.Context()); !errors.Is(err, client.ErrInUse) {
			t.Errorf("a second Run returns %v, want ErrInUse", err)
		}
		if err := o.Start(); !errors.Is(err, client.ErrInUse) {
			t.Errorf("Start during Run returns %v, want ErrInUse", err)
		}
		cancel()
		began := time.Now()
		if err := <-ended; err != nil || time.Since(began) != time.Minute {
			t.Errorf("Run returns %v after %v, want nil after a minute, when OnChange has returned", err, time.Since(began))
		}
		s.want(t, "→")
		if err := o.Run(ctx); err != nil {
			t.Errorf("Run with a context that has ended returns %v", err)
		}
		s.want(t)
	})
}

func TestObserverRunEndsWithStopAndQuit(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var s changes
		o, err := w.client().NewObserver(client.ObserverConfig{Mutex: "job", OnChange: s.add})
		must(t, err)
		for name, end := range map[string]func(){
			"Stop": func() {
				must(t, o.Stop(t.Context()))
			},
			"Quit": o.Quit,
		} {
			ended := make(chan error, 1)
			go func() { ended <- o.Run(t.Context()) }()
			synctest.Wait()
			end()
			if err := <-ended; err != nil {
				t.Errorf("%s: Run returns %v", name, err)
			}
			s.want(t, "→")
			end() // a second call must have no effect
		}
	})
}

func TestObserverMayBeStoppedInOnChange(t *testing.T) {
	over, end := context.WithCancel(context.Background())
	end()
	for name, stop := range map[string]func(t *testing.T, o *client.Observer){
		"Quit": func(_ *testing.T, o *client.Observer) { o.Quit() },
		"Stop with a context that has ended": func(t *testing.T, o *client.Observer) {
			if err := o.Stop(over); !errors.Is(err, context.Canceled) {
				t.Errorf("Stop in OnChange returns %v, want context.Canceled", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				var s changes
				var o *client.Observer
				o, err := w.client().NewObserver(client.ObserverConfig{Mutex: "job", OnChange: func(st client.State) {
					s.add(st)
					if st.After.ID == "a" {
						stop(t, o)
						if err := o.Start(); !errors.Is(err, client.ErrInUse) {
							t.Errorf("Start in OnChange returns %v, want ErrInUse", err)
						}
					}
				}})
				must(t, err)
				o.Quit() // before the first start
				must(t, o.Start())
				g := w.client()
				synctest.Wait()
				g.take(t, "a", time.Hour)
				synctest.Wait()
				g.drop(t, "a")
				g.take(t, "b", time.Hour)
				time.Sleep(time.Minute)
				s.want(t, "→", "→a")
				must(t, o.Stop(t.Context()))
				must(t, o.Start())
				s.want(t, "a→b")
				must(t, o.Stop(t.Context()))
			})
		})
	}
}

// The race detector watches goroutines that call all methods concurrently.
func TestObserverMayBeUsedByManyGoroutines(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var running sync.Mutex
		o, err := w.client().NewObserver(client.ObserverConfig{Mutex: "job", OnChange: func(client.State) {
			if !running.TryLock() {
				t.Error("two calls of OnChange run at a time")
				return
			}
			time.Sleep(time.Millisecond)
			running.Unlock()
		}})
		must(t, err)
		g := w.client()
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for k := range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(k)*time.Millisecond)
					var err error
					switch (i + k) % 4 {
					case 0:
						err = o.Run(ctx)
					case 1:
						err = o.Start()
					case 2:
						err = o.Stop(ctx)
					case 3:
						o.Quit()
						_ = o.Owner()
					}
					cancel()
					if err != nil && !errors.Is(err, client.ErrInUse) && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("the error is %v, want nil, ErrInUse or context.DeadlineExceeded", err)
					}
					time.Sleep(time.Duration(i) * time.Millisecond)
				}
			})
		}
		for range 50 {
			g.take(t, "a", time.Minute)
			time.Sleep(3 * time.Millisecond)
			g.drop(t, "a")
		}
		all.Wait()
		must(t, o.Stop(t.Context()))
	})
}
