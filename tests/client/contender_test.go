package clienttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/contend"
)

func TestWaiterWithoutAQueueEntryAsksAgain(t *testing.T) {
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
		time.Sleep(time.Second)
		if s := b.last(); s == nil || s.from-at > time.Second {
			t.Errorf("b has the ownership %+v after a was stopped at %v, want one within a second", s, at)
		}
		b.stop()
		w.neverTwo("job", a.recorder, b.recorder)
	})
}

// OnAcquired runs until its context ends. Meanwhile the contender renews the lease. The mutex is
// free when OnReleased has returned.
func TestOwnershipContextEndsBeforeOnReleasedIsCalled(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var calls []string
		a := w.contendWith(w.client(), w.recorder(), "a", func(ctx context.Context) {
			<-ctx.Done()
			calls = append(calls, fmt.Sprint(context.Cause(ctx)))
			time.Sleep(time.Second)
			calls = append(calls, "returned")
		}, func() {
			time.Sleep(time.Second)
			calls = append(calls, "released")
		})
		synctest.Wait()
		b := w.contend("b")
		time.Sleep(time.Minute)
		a.stop()
		if got, want := fmt.Sprint(calls), fmt.Sprintf("[%v returned released]", client.ErrReleased); got != want {
			t.Errorf("the calls are %s, want %s", got, want)
		}
		synctest.Wait()
		if s := b.last(); s == nil || s.from != time.Minute+2*time.Second {
			t.Errorf("the ownership of b is %+v, want one that begins 1m2s after that of a", s)
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
		synctest.Wait()
		a.stop()
		a.stop()
		if got := a.callbacks(); got != "[acquired 1 released acquired 2 released acquired 3 released acquired 4 released]" {
			t.Errorf("the callbacks are %s, want acquired and released for the tokens 1 to 4", got)
		}
	})
}

// Stop in any state leaves nothing at the server, and the contender acquires nothing later.
func TestStopInEveryStateLeavesNothing(t *testing.T) {
	handsOver := func(k, other *contender, up, down time.Duration) {
		time.Sleep(time.Minute)
		k.slow(up, down)
		other.stop()
		time.Sleep(time.Second / 2)
	}
	away := func(w *world, before, d time.Duration) {
		time.Sleep(before)
		w.stop()
		time.Sleep(d)
		w.begin()
	}
	for name, state := range map[string]struct {
		free   bool          // other stops before k starts
		delay  time.Duration // of k
		linger time.Duration // how long OnAcquired takes after the end of its context
		enter  func(w *world, k, other *contender)
	}{
		"at once after Start":      {enter: func(*world, *contender, *contender) {}},
		"before the first request": {delay: time.Hour, enter: func(*world, *contender, *contender) { time.Sleep(time.Minute) }},
		"waiting":                  {enter: func(*world, *contender, *contender) { time.Sleep(time.Minute) }},
		"receiving its grant":      {enter: func(_ *world, k, other *contender) { handsOver(k, other, 0, time.Second) }},
		"guarding its late grant":  {enter: func(_ *world, k, other *contender) { handsOver(k, other, time.Second, 0) }},
		"owner": {enter: func(_ *world, _, other *contender) {
			time.Sleep(time.Minute)
			other.stop()
			time.Sleep(time.Minute)
		}},
		"in OnAcquired": {free: true, linger: 3 * time.Second, enter: func(*world, *contender, *contender) { time.Sleep(time.Minute) }},
		// The second is shorter than the delay of the reply.
		"acquiring": {free: true, enter: func(*world, *contender, *contender) { time.Sleep(time.Second) }},
		"acquiring, with a request slower than the release": {free: true, delay: 10 * time.Second, enter: func(w *world, k, _ *contender) {
			must(w.t, k.rdb.Ping(bg).Err()) // opens a connection
			time.Sleep(9 * time.Second)
			k.slow(2*time.Second, 0)
			time.Sleep(2 * time.Second)
			k.slow(0, 0)
		}},
		"renewing": {free: true, enter: func(_ *world, k, _ *contender) {
			time.Sleep(9 * time.Second)
			k.slow(0, 2*time.Second)
			time.Sleep(2 * time.Second)
		}},
		"its request gets no reply": {free: true, enter: func(_ *world, k, _ *contender) {
			k.silence()
			time.Sleep(time.Second)
			k.cut()
			k.heal()
		}},
		"without a server":               {enter: func(w *world, _, _ *contender) { away(w, time.Second, 4*time.Second) }},
		"without a server, as the owner": {free: true, enter: func(w *world, _, _ *contender) { away(w, time.Second, 9*time.Second) }},
	} {
		for _, slow := range []time.Duration{0, 10 * time.Millisecond, time.Second} {
			t.Run(fmt.Sprintf("%s/%v", name, slow), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					other := w.contend("other")
					synctest.Wait()
					if state.free {
						other.stop()
					}
					g, d := w.client(), w.recorder()
					g.slow(slow/2, slow/2)
					k := w.contendAfter(state.delay, g, d, "k", func(ctx context.Context) {
						d.acquired(ctx)
						if state.linger != 0 {
							<-ctx.Done()
							time.Sleep(state.linger)
						}
					}, d.released)
					state.enter(w, k, other)
					must(t, k.Stop(bg))
					if slow != 0 {
						time.Sleep(5 * time.Second) // the release may continue in the background
					}
					atStop := k.callbacks()
					owner, queue := w.owner("job"), w.queue("job")
					polls := name == "without a server" // then the queue entry stays for a while
					if owner == "k" || slices.Contains(queue, "k") && !polls {
						t.Errorf("after Stop the server still has k: the owner is %q, the queue %q", owner, queue)
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
			t.Errorf("Start before the contender has stopped returns %v, want ErrInUse", err)
		}
		a.heal()
		a.stop()
		w.nothingLeft("job")
		for range 1000 {
			must(t, a.Stop(ctx)) // a stopped contender needs no time
		}
	})
}

// The release continues in the background, and the next run waits for its end.
func TestContenderStartsAgainAfterAStopWithoutReply(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		k := w.contend("k")
		synctest.Wait()
		for _, resigns := range []bool{false, true} {
			k.silence()
			if resigns {
				k.Resign()
				time.Sleep(100 * time.Millisecond)
			}
			at := w.elapsed()
			if err := k.Stop(bg); err != nil || w.elapsed()-at > timeout {
				t.Errorf("Stop returns %v after %v, want nil after at most %v", err, w.elapsed()-at, timeout)
			}
			must(t, k.Start())
			time.Sleep(time.Second)
			k.heal()
			time.Sleep(5 * time.Second)
			if !k.IsOwner() {
				t.Errorf("5 s after the server answers again, k is not the owner")
			}
		}
	})
}

func TestResignWithoutWaitersBeginsAnotherTenure(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g, log := w.logged()
		d := w.recorder()
		var k *contender
		assigned := make(chan struct{})
		k = w.contendWith(g, d, "k", func(ctx context.Context) {
			<-assigned
			d.acquired(ctx)
			if client.Token(ctx) < 4 {
				k.Resign()
			}
		}, d.released)
		close(assigned)
		time.Sleep(5 * time.Second)
		if got := log(); got != "" { // Resign is not a loss
			t.Errorf("the log is not empty:\n%s", got)
		}
		if got := k.callbacks(); got != "[acquired 1 released acquired 2 released acquired 3 released acquired 4]" {
			t.Errorf("the callbacks are %s, want four tenures, the last without released", got)
		}
		g.slow(time.Millisecond, time.Millisecond)
		k.Resign()
		time.Sleep(time.Millisecond)
		must(t, k.Stop(bg))
		time.Sleep(time.Minute)
		if got := log(); got != "" {
			t.Errorf("the log is not empty after a Stop soon after Resign: %s", got)
		}
		w.nothingLeft("job")
	})
}

func TestResignDuringAnOutageReleasesLater(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		k := w.contend("k", lease(time.Hour, 0)...)
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

// foreign is a context that package context does not know, so each context that is derived from it
// has a goroutine.
type foreign struct{ context.Context }

func (foreign) Value(any) any { return nil }

func TestRunThatHasEndedKeepsNothingInItsContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		k, err := contend.New(w.client().Client, "not valid", 0, func(context.Context) {}, nil)
		must(t, err)
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		var before int
		for i := range 11 {
			if err := k.Run(foreign{ctx}); err == nil {
				t.Error("Run returns no error for a name that is not valid")
			}
			if synctest.Wait(); i == 0 {
				before = runtime.NumGoroutine()
			}
		}
		if n := runtime.NumGoroutine() - before; n > 5 {
			t.Errorf("ten calls of Run have left %d goroutines", n)
		}
	})
}
