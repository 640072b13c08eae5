package clienttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/engine"
)

func TestSlowRepliesLoseNoLease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.contend("a"), w.contend("b")
		synctest.Wait()
		for _, delay := range []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 1900 * time.Millisecond, 2900 * time.Millisecond} {
			a.slow(0, delay)
			b.slow(delay, 0)
			time.Sleep(5 * time.Minute)
		}
		a.slow(0, 0) // else Close does not await a new connection and its request, or two requests
		b.slow(0, 0)
		time.Sleep(5 * time.Second)
		if got := w.tenures("job"); len(got) != 1 {
			t.Errorf("the tenures are %+v, want one", got)
		}
	})
}

// The owner keeps its lease if one or two of its requests get no reply.
func TestShortFaultLosesNoLease(t *testing.T) {
	for name, fault := range map[string]func(*world, *contender) (mend func()){
		"silence":        func(_ *world, k *contender) func() { k.silence(); return k.heal },
		"cut":            func(_ *world, k *contender) func() { k.cut(); return func() {} },
		"silence, cut":   func(_ *world, k *contender) func() { k.silence(); return func() { k.cut(); k.heal() } },
		"server stopped": func(w *world, _ *contender) func() { w.stop(); return w.begin },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.contend("a")
				synctest.Wait()
				b := w.contend("b")
				for range 8 {
					time.Sleep(9*time.Second + rand.N(9*time.Second))
					mend := fault(w, a)
					time.Sleep(3 * time.Second)
					mend()
				}
				if got := a.callbacks(); got != "[acquired 1]" {
					t.Errorf("the callbacks of a are %s, want no loss", got)
				}
				if got := w.tenures("job"); len(got) != 1 {
					t.Errorf("the tenures are %+v, want one", got)
				}
				a.stop()
				synctest.Wait()
				time.Sleep(3 * time.Second)
				if !b.IsOwner() {
					t.Error("contender a stopped 3 s ago, but contender b is not the owner")
				}
			})
		})
	}
}

func TestReplyAfterTheLeaseIsNoOwnership(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, d := w.clientWith(client.Options{Timeout: time.Minute}), w.recorder()
		k := w.contendAfter(time.Second, g, d, "k", d.acquired, d.released, lease(time.Second, time.Second)...)
		g.slow(0, 2*time.Second)
		time.Sleep(10 * time.Minute)
		if got := k.callbacks(); got != "[]" {
			t.Errorf("the callbacks are %s, want none while replies are slow", got)
		}
		if got := w.tenures("job"); len(got) == 0 {
			t.Error("the server has granted nothing, so the test proves nothing")
		}
		g.slow(0, 100*time.Millisecond)
		time.Sleep(10 * time.Second)
		if !k.IsOwner() {
			t.Error("10 s after the wire became fast, the contender is not the owner")
		}
		w.neverTwo("job", k.recorder)
	})
}

func TestContenderWaitsForAServerThatIsDown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.stop()
		a := w.contend("a")
		time.Sleep(time.Hour)
		if a.callbacks() != "[]" {
			t.Errorf("the callbacks are %s, want none", a.callbacks())
		}
		w.begin()
		time.Sleep(15 * time.Second) // the longest pause between attempts, with jitter
		if !a.IsOwner() {
			t.Error("15 s after the server's start, a is not the owner")
		}
	})
}

func TestEmptyServerGetsOneOwner(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.contend("a"), w.contend("b")
		for i := range 10 {
			time.Sleep(20 * time.Second)
			// After a loss of its data, a server delays new grants until old leases have ended.
			w.replace(engine.Recovery{Token: uint64(10 * (i + 1)), Delay: 12 * time.Second})
			time.Sleep(time.Minute)
			if a.IsOwner() == b.IsOwner() {
				t.Errorf("a is the owner: %v, b is the owner: %v, want one owner", a.IsOwner(), b.IsOwner())
			}
			w.neverTwo("job", a.recorder, b.recorder)
		}
	})
}

// When the server grants the mutex, the connection of the waiter is broken. The waiter must get the
// mutex nevertheless.
func TestGrantDuringADisconnectIsNotLost(t *testing.T) {
	for _, silence := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 5 * time.Second, time.Minute} {
		t.Run(fmt.Sprint(silence), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.contend("a", lease(10*time.Hour, 0)...)
				synctest.Wait()
				b := w.contend("b")
				time.Sleep(time.Minute)
				b.silence()
				a.stop()
				time.Sleep(silence)
				b.cut()
				b.heal()
				time.Sleep(3 * time.Second)
				if !b.IsOwner() {
					t.Error("b is not the owner of the free mutex")
				}
			})
		})
	}
}

// To the client, a frozen connection looks like one without grants.
func TestSilentConnectionsAreReplaced(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.contend("a", lease(10*time.Hour, 0)...)
		synctest.Wait()
		b := w.contend("b")
		time.Sleep(time.Minute)
		b.freeze() // only the present connections
		a.stop()
		time.Sleep(2*pingEvery + 2*3*time.Second) // the connections of the pool are frozen, too
		if !b.IsOwner() {
			t.Error("b is not the owner of the free mutex")
		}
	})
}

func TestBrokenOwnerIsNotifiedAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.contend("a", lease(time.Hour, 0)...)
		synctest.Wait()
		b := w.contend("b", lease(time.Hour, 0)...)
		time.Sleep(50 * time.Minute)
		at := w.elapsed()
		w.breakOff("job")
		synctest.Wait()
		if got := a.callbacks(); got != "[acquired 1 released]" || !b.IsOwner() || a.IsOwner() || w.elapsed() != at {
			t.Errorf("contender a has the callbacks %s; a owns the mutex: %v; b owns it: %v; time passed: %v; want b as the owner at once", got, a.IsOwner(), b.IsOwner(), w.elapsed()-at)
		}
		time.Sleep(time.Hour)
		if got := w.queue("job"); len(got) != 1 || got[0] != "a" {
			t.Errorf("the queue is %q, want only contender a", got)
		}
	})
}

func TestSlowCallbacksRunInOrderOneAtATime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		slow := func(id string) *contender {
			d := w.recorder()
			return w.contendWith(w.client(), d, id, func(ctx context.Context) {
				time.Sleep(rand.N(30 * time.Second))
				d.acquired(ctx)
			}, func() {
				time.Sleep(rand.N(30 * time.Second))
				d.released()
			})
		}
		a, b := slow("a"), slow("b")
		for range 100 {
			time.Sleep(rand.N(20 * time.Second))
			w.breakOff("job")
		}
		for _, k := range []*contender{a, b} {
			k.stop()
			k.recorder.mu.Lock()
			for i, line := range k.lines {
				if wantReleased := i%2 == 1; (line == "released") != wantReleased {
					t.Errorf("callback %d of %s is %s, want acquired and released in turn", i, k.id, line)
				}
			}
			if len(k.lines)%2 != 0 || len(k.lines) < 20 {
				t.Errorf("%s has got %d calls, want an even number, at least 20", k.id, len(k.lines))
			}
			k.recorder.mu.Unlock()
		}
		w.tenures("job")
	})
}

// Ten contenders run for minutes under faults of all kinds. Each ownership must end, by the owner's
// clock, before the server grants the mutex to the next contender.
func TestNeverTwoOwnersUnderFaults(t *testing.T) {
	for range 2 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				r := rand.New(rand.NewPCG(seed, 1))
				pick := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
				var all []*contender
				var recorders []*recorder
				contend := func(g *testClient) *contender {
					id := fmt.Sprint("k", len(recorders))
					k := w.contendOver(g, id, lease(3*time.Second, pick(3*time.Second).Truncate(time.Millisecond))...)
					recorders = append(recorders, k.recorder)
					return k
				}
				for range 10 {
					all = append(all, contend(w.clientOf("", client.Options{}, promptNotices)))
				}
				// With some seeds there are few tenures in five minutes, and the test continues.
				for w.elapsed() < 5*time.Minute || w.elapsed() < time.Hour && len(w.tenures("job")) < 8 {
					time.Sleep(pick(8 * time.Second))
					k := all[r.IntN(len(all))]
					for _, o := range all { // prefer the owner
						if o.IsOwner() && r.IntN(3) > 0 {
							k = o
						}
					}
					switch r.IntN(12) {
					case 0:
						k.cut()
					case 1, 2:
						k.silence()
						time.Sleep(pick(6 * time.Second))
						k.heal()
					case 3:
						k.freeze()
					case 4, 5, 6:
						k.slow(pick(2*time.Second), pick(2*time.Second))
					case 7, 8:
						k.slow(0, 0)
					case 9:
						w.restart()
					case 10:
						w.breakOff("nothing")
						w.stop()
						time.Sleep(pick(10 * time.Second))
						w.begin()
					case 11:
						k.stop()
						must(t, k.Start())
					}
				}
				for _, k := range all {
					k.heal()
					k.slow(0, 0)
				}
				if n := len(w.tenures("job")); n < 8 {
					t.Errorf("there were %d tenures, want at least 8", n)
				}
				time.Sleep(time.Minute)
				owning := 0
				for _, k := range all {
					if k.IsOwner() {
						owning++
					}
				}
				if owning != 1 {
					t.Errorf("after the faults %d contenders own the mutex, want 1", owning)
				}
				for _, k := range all {
					k.stop()
				}
				w.nothingLeft("job")
				w.neverTwo("job", recorders...)
			})
		})
	}
}
