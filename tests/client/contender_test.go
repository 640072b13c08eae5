package clienttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/client"
)

func lease(ttl, transition time.Duration) func(*client.ContenderConfig) {
	if transition == 0 {
		transition = client.NoTransition
	}
	return func(cfg *client.ContenderConfig) { cfg.TTL, cfg.Transition = ttl, transition }
}

func TestOwnerKeepsItsTenureOverManyTTLs(t *testing.T) {
	for _, transition := range []time.Duration{0, 2 * time.Second, time.Minute} {
		t.Run(fmt.Sprint(transition), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.contend("a", lease(10*time.Second, transition))
				b := w.contend("b", lease(10*time.Second, transition))
				time.Sleep(20 * time.Minute)
				if got := w.tenures("job"); len(got) != 1 || got[0].Owner != "a" && got[0].Owner != "b" {
					t.Fatalf("the tenures are %+v, want one of a or b", got)
				}
				if a.IsOwner() == b.IsOwner() {
					t.Errorf("a is the owner: %v, b is the owner: %v, want one owner", a.IsOwner(), b.IsOwner())
				}
				for _, k := range []*contender{a, b} {
					if o := k.Contender.Owner(); o.ID != w.owner("job") || o.Token != 1 || !time.Now().Before(o.TransitionAt) {
						t.Errorf("Owner of %s returns %+v, want the server's owner with token 1", k.ID(), o)
					}
				}
			})
		})
	}
}

func TestStopHandsOverAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.contend("a")
		synctest.Wait()
		b := w.contend("b")
		time.Sleep(25 * time.Second)
		at := w.elapsed()
		a.stop()
		synctest.Wait()
		if !b.IsOwner() || w.elapsed() != at {
			t.Errorf("b is the owner: %v, %v after a was stopped; want true at once", b.IsOwner(), w.elapsed()-at)
		}
		if got := a.callbacks(); got != "[acquired 1 released]" {
			t.Errorf("the callbacks of a are %s, want acquired 1 and released", got)
		}
		b.stop()
		w.nothingLeft("job")
		w.neverTwo("job", a.recorder, b.recorder)
	})
}

func TestContenderWithoutAQueueEntryAsksWhenTheMutexIsFree(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.contend("a")
		synctest.Wait()
		b := w.contend("b")
		time.Sleep(25 * time.Second)
		if n, err := b.rdb.ZRem(t.Context(), "simba:{job}:contender", "b").Result(); n != 1 || err != nil {
			t.Fatalf("ZREM of the queue entry of b returns %d, %v, want 1", n, err)
		}
		at := w.elapsed()
		a.stop()
		synctest.Wait()
		if !b.IsOwner() || w.elapsed() != at {
			t.Errorf("b is the owner: %v, %v after a was stopped; want true at once", b.IsOwner(), w.elapsed()-at)
		}
		b.stop()
		w.neverTwo("job", a.recorder, b.recorder)
	})
}

func TestDeadOwnersMutexGoesToTheNextAtTransitionAt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.contend("a")
		synctest.Wait()
		b := w.contend("b")
		time.Sleep(25 * time.Second)
		end := time.Until(a.Contender.Owner().TransitionAt)
		a.silence()
		time.Sleep(end - time.Millisecond)
		if b.IsOwner() {
			t.Error("b owns the mutex before transition_at")
		}
		if a.IsOwner() {
			t.Error("a has no connection, but still owns the mutex when the server may grant it to b")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if !b.IsOwner() {
			t.Error("b does not own the mutex just after transition_at")
		}
		w.neverTwo("job", a.recorder, b.recorder)
		a.heal()
		time.Sleep(time.Minute)
		if got := a.callbacks(); got != "[acquired 1 released]" || a.IsOwner() {
			t.Errorf("the callbacks of a are %s, want acquired 1 and released; a is the owner: %v", got, a.IsOwner())
		}
	})
}

// A waiter that gets no notices tries again when the owner's lease ends.
func TestDeadOwnersMutexIsAcquiredWithoutNotices(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.contend("a")
		synctest.Wait()
		b := w.lateClient(0)
		b.losing.Store(true)
		k := w.contendOver(b.testClient, "b")
		time.Sleep(25 * time.Second)
		end := time.Until(a.Contender.Owner().TransitionAt)
		a.silence()
		time.Sleep(end + time.Second + time.Millisecond)
		if !k.IsOwner() {
			t.Error("b does not own the mutex at transition_at plus the largest jitter")
		}
		w.neverTwo("job", a.recorder, k.recorder)
	})
}

func TestOnReleasedReturnsBeforeAnotherOwns(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var returned time.Duration
		a := w.contend("a", func(cfg *client.ContenderConfig) {
			cfg.OnReleased = func(client.State) {
				time.Sleep(3 * time.Second)
				returned = w.elapsed()
			}
		})
		synctest.Wait()
		b := w.contend("b")
		time.Sleep(11 * time.Second)
		a.stop()
		synctest.Wait()
		if s := b.last(); s == nil || s.from < returned || returned != 14*time.Second {
			t.Errorf("the ownership of b is %+v, but OnReleased of a returned at %v, want 14s", s, returned)
		}
	})
}

// OnAcquired runs until its context ends. Meanwhile the contender renews the lease.
func TestOwnershipContextEndsBeforeOnReleasedIsCalled(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var calls []string
		a := w.contend("a", func(cfg *client.ContenderConfig) {
			cfg.OnAcquired = func(ctx context.Context, _ client.State) {
				<-ctx.Done()
				calls = append(calls, fmt.Sprint(context.Cause(ctx)))
				time.Sleep(time.Second)
				calls = append(calls, "returned")
			}
			cfg.OnReleased = func(client.State) { calls = append(calls, "released") }
		})
		time.Sleep(time.Minute)
		a.stop()
		if got, want := fmt.Sprint(calls), fmt.Sprintf("[%v returned released]", client.ErrReleased); got != want {
			t.Errorf("the calls are %s, want %s", got, want)
		}
		if got := w.tenures("job"); len(got) != 1 || got[0].To != time.Minute+time.Second {
			t.Errorf("the tenures are %+v, want one that ends after 1m1s", got)
		}
	})
}

func TestContenderStartsAgainAfterEachStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.contend("a")
		for range 3 {
			synctest.Wait()
			if err := a.Start(); !errors.Is(err, client.ErrInUse) {
				t.Errorf("Start of a started contender returns %v, want ErrInUse", err)
			}
			a.stop()
			if a.IsOwner() {
				t.Error("IsOwner returns true after Stop")
			}
			w.nothingLeft("job")
			must(t, a.Start())
		}
		a.stop()
		a.stop()
		if got := a.callbacks(); !strings.HasPrefix(got, "[acquired 1 released acquired 2 released acquired 3 released") {
			t.Errorf("the callbacks are %s, want acquired and released for the tokens 1, 2, 3, …", got)
		}
	})
}

// Stop in any state leaves nothing at the server, and the contender acquires nothing later.
func TestStopInEveryStateLeavesNothing(t *testing.T) {
	states := map[string]func(w *world, other *contender, start func(...func(*client.ContenderConfig)) *contender) *contender{
		"at once after Start": func(_ *world, _ *contender, start func(...func(*client.ContenderConfig)) *contender) *contender {
			return start()
		},
		"before the first request": func(_ *world, _ *contender, start func(...func(*client.ContenderConfig)) *contender) *contender {
			k := start(func(cfg *client.ContenderConfig) { cfg.InitialDelay = time.Hour })
			time.Sleep(time.Minute)
			return k
		},
		"waiting": func(_ *world, _ *contender, start func(...func(*client.ContenderConfig)) *contender) *contender {
			k := start()
			time.Sleep(time.Minute)
			return k
		},
		"asking after its notice": func(_ *world, other *contender, start func(...func(*client.ContenderConfig)) *contender) *contender {
			k := start()
			time.Sleep(time.Minute)
			k.slow(time.Second, 0)
			other.stop()
			time.Sleep(time.Second / 2)
			return k
		},
		"owner": func(_ *world, other *contender, start func(...func(*client.ContenderConfig)) *contender) *contender {
			k := start()
			time.Sleep(time.Minute)
			other.stop()
			time.Sleep(time.Minute)
			return k
		},
		"in OnAcquired": func(_ *world, other *contender, start func(...func(*client.ContenderConfig)) *contender) *contender {
			other.stop()
			k := start(func(cfg *client.ContenderConfig) {
				acquired := cfg.OnAcquired
				cfg.OnAcquired = func(ctx context.Context, s client.State) {
					acquired(ctx, s)
					<-ctx.Done()
					time.Sleep(3 * time.Second)
				}
			})
			time.Sleep(time.Minute)
			return k
		},
		"acquiring": func(_ *world, other *contender, start func(...func(*client.ContenderConfig)) *contender) *contender {
			other.stop()
			k := start()
			time.Sleep(time.Second) // shorter than the delay of the reply
			return k
		},
		"acquiring, with a request slower than the release": func(_ *world, other *contender, start func(...func(*client.ContenderConfig)) *contender) *contender {
			other.stop()
			k := start(func(cfg *client.ContenderConfig) { cfg.InitialDelay = 10 * time.Second })
			if err := k.rdb.Ping(context.Background()).Err(); err != nil { // opens a connection
				k.w.t.Fatal(err)
			}
			time.Sleep(9 * time.Second)
			k.slow(2*time.Second, 0)
			time.Sleep(2 * time.Second)
			k.slow(0, 0)
			return k
		},
		"renewing": func(_ *world, other *contender, start func(...func(*client.ContenderConfig)) *contender) *contender {
			other.stop()
			k := start()
			time.Sleep(9 * time.Second)
			k.slow(0, 2*time.Second)
			time.Sleep(2 * time.Second)
			return k
		},
		"its request gets no reply": func(_ *world, other *contender, start func(...func(*client.ContenderConfig)) *contender) *contender {
			other.stop()
			k := start()
			k.silence()
			time.Sleep(time.Second)
			k.cut()
			k.heal()
			return k
		},
		"without a server": func(w *world, _ *contender, start func(...func(*client.ContenderConfig)) *contender) *contender {
			k := start()
			time.Sleep(time.Second)
			w.stop()
			time.Sleep(4 * time.Second)
			w.begin()
			return k
		},
		"without a server, as the owner": func(w *world, other *contender, start func(...func(*client.ContenderConfig)) *contender) *contender {
			other.stop()
			k := start()
			time.Sleep(time.Second)
			w.stop()
			time.Sleep(9 * time.Second)
			w.begin()
			return k
		},
	}
	for name, enter := range states {
		for _, slow := range []time.Duration{0, 10 * time.Millisecond, time.Second} {
			t.Run(fmt.Sprintf("%s/%v", name, slow), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					other := w.contend("other")
					synctest.Wait()
					k := enter(w, other, func(changes ...func(*client.ContenderConfig)) *contender {
						g := w.client()
						g.slow(slow/2, slow/2)
						return w.contendOver(g, "k", changes...)
					})
					if err := k.Stop(bg); err != nil {
						if !errors.Is(err, client.ErrUnavailable) || slow == 0 {
							t.Errorf("Stop returns %v", err)
						}
						time.Sleep(5 * time.Second) // the release continues in the background
					}
					atStop := k.callbacks()
					for _, id := range append(w.queue("job"), w.owner("job")) {
						if id == "k" {
							t.Errorf("after Stop the server still has k: the owner is %q, the queue %q", w.owner("job"), w.queue("job"))
						}
					}
					if k.IsOwner() {
						t.Error("IsOwner returns true after Stop")
					}
					k.slow(0, 0)
					time.Sleep(time.Minute)
					for _, e := range w.history("job") {
						if e.Owner == "k" && e.Kind == simba.EventExpired {
							t.Errorf("k did not release its tenure with token %d", e.Token)
						}
					}
					other.stop()
					time.Sleep(time.Minute)
					w.nothingLeft("job")
					if got := k.callbacks(); got != atStop || strings.Count(got, "acquired") != strings.Count(got, "released") {
						t.Errorf("the callbacks until Stop are %s, all callbacks are %s; want pairs, and none after Stop", atStop, got)
					}
					w.neverTwo("job", k.recorder, other.recorder)
				})
			})
		}
	}
}

func TestStopWaitsNoLongerThanItsContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.contend("a")
		time.Sleep(time.Second)
		a.silence()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := a.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop returns %v, want context.DeadlineExceeded", err)
		}
		if a.IsOwner() || a.callbacks() != "[acquired 1 released]" {
			t.Errorf("a is the owner: %v, its callbacks are %s; want no owner, acquired 1 and released", a.IsOwner(), a.callbacks())
		}
		if err := a.Start(); !errors.Is(err, client.ErrInUse) {
			t.Errorf("Start before the mutex is released returns %v, want ErrInUse", err)
		}
		a.heal()
		a.stop()
		w.nothingLeft("job")
	})
}
