package clienttest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/client"
)

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
