package clienttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/registry"
)

var bg = context.Background()

// testRegistry is a Registry, and what the tests have obtained from it.
type testRegistry struct {
	*registry.Registry
	mode  registry.Mode
	locks map[string]*registry.Lock
}

// registry returns a Registry that is closed before the world ends. Then it must remember no lock
// but those that are locked.
func (g *testClient) registry(t *testing.T, cfg registry.Config) *testRegistry {
	t.Helper()
	if cfg.Prefix == "" {
		cfg.Prefix = "spring"
	}
	made, err := registry.New(g.Client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &testRegistry{made, cfg.Mode, make(map[string]*registry.Lock)}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		r.ExpireUnusedOlderThan(-1)
		for key, l := range r.locks {
			now, err := r.Obtain(key)
			if remembered := now == l; err != nil || remembered && !l.IsHeldInThisProcess() {
				t.Errorf("of %s something is left, and it is not locked: %v", key, err)
			}
		}
	})
	return r
}

func obtain(t *testing.T, r *testRegistry, key string) *registry.Lock {
	t.Helper()
	l, err := r.Obtain(key)
	if err != nil {
		t.Fatal(err)
	}
	r.locks[key] = l
	return l
}

// must fails unless a lock is locked, or unlocked.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tried fails unless a try ended so.
func tried(t *testing.T, want bool) func(bool, error) {
	t.Helper()
	return func(ok bool, err error) {
		t.Helper()
		if ok != want || err != nil {
			t.Fatalf("%v, %v, not %v", ok, err, want)
		}
	}
}

// inBothModes runs a test in a world with two registries that share their locks.
func inBothModes(t *testing.T, test func(t *testing.T, w *world, a, b *testRegistry)) {
	for _, mode := range []registry.Mode{registry.Notified, registry.Spin} {
		t.Run(mode.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.client().registry(t, registry.Config{ID: "a", Mode: mode, ExpireAfter: 10 * time.Second})
				b := w.client().registry(t, registry.Config{ID: "b", Mode: mode, ExpireAfter: 10 * time.Second})
				test(t, w, a, b)
			})
		})
	}
}

func TestObtainReturnsTheSameLockForAKey(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r := w.client().registry(t, registry.Config{})
		l := obtain(t, r, "x")
		if obtain(t, r, "x") != l || obtain(t, r, "y") == l || l.Key() != "x" {
			t.Error("not the same lock")
		}
		h := r.NewHolder()
		must(t, l.Lock(bg, h))
		if !ours(w.owner("spring:x"), r.ID()) {
			t.Errorf("spring:x is owned by %q", w.owner("spring:x"))
		}
		must(t, l.Unlock(bg, h))
	})
}

func TestObtainRejectsInvalidKeys(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r := w.client().registry(t, registry.Config{})
		for _, key := range []string{"", "a b", "a{b", strings.Repeat("x", 255), "\x00"} {
			if _, err := r.Obtain(key); err == nil {
				t.Errorf("%q is a key", key)
			}
		}
	})
}

func TestRegistryConfigIsChecked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for want, cfg := range map[string]registry.Config{
			"Prefix":                         {},
			"ID":                             {Prefix: "p", ID: "a b"},
			"ExpireAfter is -1ms":            {Prefix: "p", ExpireAfter: -time.Millisecond},
			"ExpireAfter is 1ns":             {Prefix: "p", ExpireAfter: 1},
			"ExpireAfter is 25h0m0s":         {Prefix: "p", ExpireAfter: 25 * time.Hour},
			"Mode is Mode(7)":                {Prefix: "p", Mode: 7},
			"SpinEvery is -1ns, less than 0": {Prefix: "p", SpinEvery: -1},
			"Capacity is -1, less than 0":    {Prefix: "p", Capacity: -1},
		} {
			if _, err := registry.New(w.client().Client, cfg); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v", cfg, err)
			}
		}
	})
}

func TestRegistryLockIsReentrantForItsHolderOnly(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l := obtain(t, a, "x")
		h, other := a.NewHolder(), a.NewHolder()
		must(t, l.Lock(bg, h))
		token := l.Token()
		must(t, l.Lock(bg, h))
		tried(t, true)(l.TryLock(bg, h))
		tried(t, true)(l.TryLockFor(bg, h, time.Second))
		tried(t, false)(l.TryLock(bg, other))
		tried(t, false)(l.TryLockFor(bg, other, time.Second))
		if token == 0 || l.Token() != token || client.Token(l.Context(h)) != token {
			t.Errorf("tokens %d, %d, %d", token, l.Token(), client.Token(l.Context(h)))
		}
		if !errors.Is(context.Cause(l.Context(other)), registry.ErrNotHolder) || !errors.Is(context.Cause(l.Context(nil)), registry.ErrNotHolder) {
			t.Error("who does not have it has a context")
		}
		own := l.Context(h)
		for range 3 {
			must(t, l.Unlock(bg, h))
			if !ours(w.owner("spring:x"), "a") || own.Err() != nil || !l.IsHeldInThisProcess() {
				t.Fatal("it is free before it is unlocked as often as locked")
			}
		}
		must(t, l.Unlock(bg, h))
		w.nothingLeft("spring:x")
		if !errors.Is(context.Cause(own), client.ErrReleased) || l.IsHeldInThisProcess() || l.Token() != 0 {
			t.Error("it is held after the last unlock")
		}
		if err := l.Unlock(bg, h); !errors.Is(err, registry.ErrNotHolder) {
			t.Errorf("one unlock too many: %v", err)
		}
	})
}

func TestUnlockByAnotherHolderIsAnError(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l := obtain(t, a, "x")
		h := a.NewHolder()
		must(t, l.Lock(bg, h))
		for _, other := range []*registry.Holder{nil, a.NewHolder()} {
			err := l.Unlock(bg, other)
			if !errors.Is(err, registry.ErrNotHolder) || err.Error() != "you do not own the lock at spring:x" {
				t.Error(err)
			}
		}
		if !ours(w.owner("spring:x"), "a") || l.Context(h).Err() != nil {
			t.Error("another has unlocked it")
		}
		if err := l.Lock(bg, nil); err == nil {
			t.Error("nobody has locked it")
		}
		must(t, l.Unlock(bg, h))
	})
}

func TestRegistriesExcludeEachOther(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, b *testRegistry) {
		la, lb := obtain(t, a, "x"), obtain(t, b, "x")
		ha, hb := a.NewHolder(), b.NewHolder()
		must(t, la.Lock(bg, ha))
		tried(t, false)(lb.TryLock(bg, hb))
		began := time.Now()
		tried(t, false)(lb.TryLockFor(bg, hb, 2*time.Second))
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("waited %v", d)
		}
		synctest.Wait()
		if q := w.queue("spring:x"); len(q) != 0 {
			t.Errorf("%q wait after they have given up", q)
		}
		got := make(chan error)
		go func() { got <- lb.Lock(bg, hb) }()
		time.Sleep(3 * time.Second)
		if q := w.queue("spring:x"); (len(q) == 1) != (b.mode == registry.Notified) {
			t.Errorf("%q wait in the queue", q)
		}
		must(t, la.Unlock(bg, ha))
		freed := time.Now()
		must(t, <-got)
		if d := time.Since(freed); b.mode == registry.Notified && d != 0 || d > spinEvery {
			t.Errorf("it is handed over after %v", d)
		}
		must(t, lb.Unlock(bg, hb))
		w.nothingLeft("spring:x")
		w.tenures("spring:x")
	})
}

func TestSpinSendsARequestEverySpinEvery(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.client().registry(t, registry.Config{ID: "a"})
		b := w.client().registry(t, registry.Config{ID: "b", Mode: registry.Spin, SpinEvery: 700 * time.Millisecond})
		la, lb := obtain(t, a, "x"), obtain(t, b, "x")
		ha, hb := a.NewHolder(), b.NewHolder()
		must(t, la.Lock(bg, ha))
		time.AfterFunc(800*time.Millisecond, func() {
			if err := la.Unlock(bg, ha); err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		must(t, lb.Lock(bg, hb))
		if d := time.Since(began); d != 1400*time.Millisecond {
			t.Errorf("it is locked after %v", d)
		}
	})
}

func TestHoldersInAProcessAreFirstComeFirstServed(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l := obtain(t, a, "x")
		const n = 20
		var order []int
		inside := false
		done := make(chan error)
		for i := range n {
			go func() {
				h := a.NewHolder()
				if err := l.Lock(bg, h); err != nil {
					done <- err
					return
				}
				if inside {
					t.Error("two at a time")
				}
				inside = true
				order = append(order, i)
				time.Sleep(time.Second)
				inside = false
				done <- l.Unlock(bg, h)
			}()
			synctest.Wait()
		}
		for range n {
			must(t, <-done)
		}
		for i, who := range order {
			if i != who {
				t.Fatalf("the order is %v", order)
			}
		}
		if got := w.tenures("spring:x"); len(got) != n {
			t.Errorf("%d tenures for %d holders", len(got), n)
		}
		w.nothingLeft("spring:x")
	})
}

func TestRegistryLeaseIsNotRenewed(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, b *testRegistry) {
		la, lb := obtain(t, a, "x"), obtain(t, b, "x")
		ha, hb := a.NewHolder(), b.NewHolder()
		must(t, lb.Lock(bg, hb))
		got := make(chan error)
		go func() { got <- la.Lock(bg, ha) }() // so that it listens while it owns
		time.Sleep(time.Second)
		must(t, lb.Unlock(bg, hb))
		must(t, <-got)
		own, since := la.Context(ha), time.Now()
		time.Sleep(5 * time.Second)
		w.guests[0].cut() // neither by what is heard anew
		<-own.Done()
		if d := time.Since(since); d >= 10*time.Second || d < 9800*time.Millisecond || !errors.Is(context.Cause(own), client.ErrLost) {
			t.Errorf("it ended after %v: %v", d, context.Cause(own))
		}
		if !la.IsHeldInThisProcess() || la.Token() != client.Token(own) {
			t.Error("its holder has not unlocked it yet")
		}
		if err := la.Lock(bg, ha); !errors.Is(err, client.ErrLost) {
			t.Errorf("locked again after it was lost: %v", err)
		}
		tried(t, false)(la.TryLock(bg, a.NewHolder()))
		time.Sleep(time.Second)
		must(t, lb.Lock(bg, hb)) // another may have it
		err := la.Unlock(bg, ha)
		if !errors.Is(err, client.ErrLost) || !strings.Contains(err.Error(), "integrity of data protected by this lock may have been compromised") {
			t.Errorf("unlock of a lost lock: %v", err)
		}
		if !ours(w.owner("spring:x"), "b") || la.IsHeldInThisProcess() {
			t.Errorf("%q owns it", w.owner("spring:x"))
		}
		must(t, lb.Unlock(bg, hb))
		must(t, la.Lock(bg, ha)) // and it can be locked anew
		must(t, la.Unlock(bg, ha))
	})
}

func TestLockingAgainBeginsTheLeaseAnew(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		must(t, l.Lock(bg, h))
		own := l.Context(h)
		for range 10 {
			time.Sleep(8 * time.Second)
			must(t, l.Lock(bg, h))
		}
		if own.Err() != nil || len(w.tenures("spring:x")) != 1 {
			t.Error(context.Cause(own))
		}
		for range 11 {
			must(t, l.Unlock(bg, h))
		}
		w.nothingLeft("spring:x")
	})
}

func TestUnlockReturnsErrLostIfTheServerHasNoLock(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		must(t, l.Lock(bg, h))
		w.breakOff("spring:x")
		if err := l.Unlock(bg, h); !errors.Is(err, client.ErrLost) || !strings.Contains(err.Error(), "integrity") {
			t.Error(err)
		}
		must(t, l.Lock(bg, h))
		w.breakOff("spring:x")
		if err := l.Lock(bg, h); !errors.Is(err, client.ErrLost) {
			t.Errorf("locked again: %v", err)
		}
		if err := l.Unlock(bg, h); !errors.Is(err, client.ErrLost) {
			t.Error(err)
		}
	})
}

func TestCanceledRegistryLockIsNotOwnedLater(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, b *testRegistry) {
		la, lb := obtain(t, a, "x"), obtain(t, b, "x")
		ha, hb := a.NewHolder(), b.NewHolder()
		ended, cancel := context.WithCancel(bg)
		cancel()
		if err := la.Lock(ended, ha); !errors.Is(err, context.Canceled) || len(w.history("spring:x")) != 0 {
			t.Errorf("with a context that has ended: %v", err)
		}
		for _, fault := range []func(g *testClient){
			func(*testClient) {},                           // waiting for another
			func(g *testClient) { g.slow(time.Second, 0) }, // the request is under way
			func(g *testClient) { g.slow(0, time.Second) }, // the answer is
			func(g *testClient) { g.slow(time.Minute, 0) }, // the request comes long after
			func(g *testClient) { g.silence() },
		} {
			must(t, lb.Lock(bg, hb))
			fault(w.guests[0])
			ctx, cancel := context.WithTimeout(bg, 500*time.Millisecond)
			err := la.Lock(ctx, ha)
			if !errors.Is(err, client.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			cancel()
			must(t, lb.Unlock(bg, hb))
			time.Sleep(time.Minute)
			w.guests[0].heal()
			w.guests[0].slow(0, 0)
			w.guests[0].cut()
			time.Sleep(5 * time.Minute)
			w.nothingLeft("spring:x")
			if la.IsHeldInThisProcess() {
				t.Error("it is held")
			}
		}
		must(t, la.Lock(bg, ha))
		must(t, la.Unlock(bg, ha))
		w.tenures("spring:x")
	})
}

func TestLocalWaiterCanBeCanceled(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h, second, third := obtain(t, a, "x"), a.NewHolder(), a.NewHolder(), a.NewHolder()
		must(t, l.Lock(bg, h))
		ctx, cancel := context.WithCancel(bg)
		got := make(chan error, 2)
		go func() { got <- l.Lock(ctx, second) }()
		synctest.Wait()
		go func() { got <- l.Lock(bg, third) }()
		synctest.Wait()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) || !errors.Is(err, client.ErrNotAcquired) {
			t.Error(err)
		}
		must(t, l.Unlock(bg, h))
		must(t, <-got)
		must(t, l.Unlock(bg, third))
	})
}

func TestRegistryUnlockContinuesInTheBackground(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, b *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		ended, cancel := context.WithCancel(bg)
		cancel()
		must(t, l.Lock(bg, h))
		own := l.Context(h)
		w.guests[0].slow(time.Second, 0)
		if err := l.Unlock(ended, h); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if own.Err() == nil || l.IsHeldInThisProcess() || !ours(w.owner("spring:x"), "a") {
			t.Error("it is not unlocked here, or at the server already")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		w.nothingLeft("spring:x")
		must(t, l.Lock(bg, h))
		_ = l.Unlock(ended, h)
		must(t, l.Lock(bg, h)) // the release of the one before does not end this one
		time.Sleep(5 * time.Second)
		if !ours(w.owner("spring:x"), "a") || l.Context(h).Err() != nil {
			t.Error("a late release has ended a later tenure")
		}
		must(t, l.Unlock(bg, h))
	})
}

func TestRegistryWithoutAServer(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		w.stop()
		if ok, err := l.TryLock(bg, h); ok || err == nil {
			t.Errorf("tried: %v, %v", ok, err)
		}
		if ok, err := l.TryLockFor(bg, h, 2*time.Second); ok || err == nil || !strings.Contains(err.Error(), "no reply in time") && !strings.Contains(err.Error(), "refused") {
			t.Errorf("tried for a while: %v, %v", ok, err)
		}
		ctx, cancel := context.WithTimeout(bg, 30*time.Second)
		if err := l.Lock(ctx, h); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
		got := make(chan error)
		go func() { got <- l.Lock(bg, h) }()
		time.Sleep(time.Minute)
		w.begin()
		must(t, <-got)
		w.stop()
		if ok, err := l.TryLock(bg, h); ok || err == nil {
			t.Errorf("tried again: %v, %v", ok, err)
		}
		w.begin()
		must(t, l.Lock(bg, h))
		must(t, l.Unlock(bg, h))
		w.stop()
		go func() { got <- l.Unlock(bg, h) }() // it waits until the server is there again
		time.Sleep(2 * time.Second)
		w.begin()
		must(t, <-got)
		w.nothingLeft("spring:x")
		w.tenures("spring:x")
	})
}

func TestTryLockForOfItsHolderReturnsNoReply(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		must(t, l.Lock(bg, h))
		w.guests[0].slow(time.Second, 0)
		if ok, err := l.TryLockFor(bg, h, 500*time.Millisecond); ok || err == nil || !strings.Contains(err.Error(), "no reply in time") {
			t.Errorf("%v, %v", ok, err)
		}
		w.guests[0].slow(0, 0)
		must(t, l.Unlock(bg, h))
	})
}

func TestRegistryUnlockReturnsAfterTimeout(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		must(t, l.Lock(bg, h))
		w.stop()
		began := time.Now()
		if err := l.Unlock(bg, h); !errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrLost) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		w.begin()
		must(t, l.Lock(bg, h))
		must(t, l.Unlock(bg, h))
	})
}

func TestRegistryReturnsRefusalsAtOnce(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		s := w.withStore()
		s.refuses.Store(true)
		refused := func(err error) bool {
			var drain redis.Error
			return errors.As(err, &drain) && drain.Error() == noTable
		}
		if err := l.Lock(bg, h); err == nil || errors.Is(err, client.ErrNotAcquired) || !refused(err) {
			t.Error(err)
		}
		if ok, err := l.TryLock(bg, h); ok || !refused(err) {
			t.Error(ok, err)
		}
		if ok, err := l.TryLockFor(bg, h, time.Minute); ok || !refused(err) || w.elapsed() != 0 {
			t.Error(ok, err)
		}
	})
}

func TestGoroutinesShareTheLocksOfAHolder(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		w.guests[0].slow(100*time.Millisecond, 0)
		const n = 10
		got := make(chan error, n)
		for range n {
			go func() { got <- l.Lock(bg, h) }()
		}
		for range n {
			must(t, <-got)
		}
		if all := w.tenures("spring:x"); len(all) != 1 || all[0].end != 0 {
			t.Errorf("tenures: %+v", all)
		}
		// The last unlock comes while it is locked again: the lock stays.
		for range n - 1 {
			must(t, l.Unlock(bg, h))
		}
		go func() { got <- l.Lock(bg, h) }()
		synctest.Wait()
		must(t, l.Unlock(bg, h))
		must(t, <-got)
		if !l.IsHeldInThisProcess() || l.Context(h).Err() != nil {
			t.Error("it is not held")
		}
		go func() { got <- l.Lock(bg, h) }()
		synctest.Wait()
		w.breakOff("spring:x") // now it cannot be locked again
		must(t, l.Unlock(bg, h))
		if err := <-got; !errors.Is(err, client.ErrLost) || l.IsHeldInThisProcess() {
			t.Error(err)
		}
		must(t, l.Lock(bg, a.NewHolder()))
	})
}

func TestRegistryForgetsTheLeastRecentlyUsedThatIsNotLocked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r := w.client().registry(t, registry.Config{Capacity: 3})
		h := r.NewHolder()
		one, two, three := obtain(t, r, "1"), obtain(t, r, "2"), obtain(t, r, "3")
		must(t, one.Lock(bg, h))
		obtain(t, r, "2") // used: 3 is older now
		four := obtain(t, r, "4")
		if obtain(t, r, "1") != one || obtain(t, r, "2") != two || obtain(t, r, "4") != four {
			t.Error("the wrong one is forgotten")
		}
		if obtain(t, r, "3") == three {
			t.Error("3 is not forgotten")
		}
		// What was forgotten is still the same lock.
		must(t, three.Lock(bg, h))
		tried(t, false)(obtain(t, r, "3").TryLock(bg, r.NewHolder()))
		must(t, obtain(t, r, "3").Unlock(bg, h))
		// More may be locked than it remembers.
		for i := range 10 {
			must(t, obtain(t, r, fmt.Sprint("m", i)).Lock(bg, h))
		}
		if n := r.ExpireUnusedOlderThan(-1); n != 0 {
			t.Errorf("it remembers %d that are not locked", n)
		}
		for i := range 10 {
			must(t, obtain(t, r, fmt.Sprint("m", i)).Unlock(bg, h))
		}
		must(t, one.Unlock(bg, h))
		synctest.Wait()
		if n := r.ExpireUnusedOlderThan(-1); n != 3 {
			t.Errorf("it remembers %d", n)
		}
	})
}

func TestExpireUnusedOlderThanForgetsWhatIsNotLocked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r := w.client().registry(t, registry.Config{ExpireAfter: time.Hour})
		h := r.NewHolder()
		held, old := obtain(t, r, "held"), obtain(t, r, "old")
		must(t, held.Lock(bg, h))
		must(t, old.Lock(bg, h))
		must(t, old.Unlock(bg, h))
		time.Sleep(10 * time.Minute)
		young := obtain(t, r, "young")
		if n := r.ExpireUnusedOlderThan(10 * time.Minute); n != 0 {
			t.Errorf("%d were forgotten", n)
		}
		time.Sleep(time.Second)
		if n := r.ExpireUnusedOlderThan(10 * time.Minute); n != 1 {
			t.Errorf("%d were forgotten", n)
		}
		if obtain(t, r, "held") != held || obtain(t, r, "young") != young || obtain(t, r, "old") == old {
			t.Error("the wrong one is forgotten")
		}
		must(t, held.Unlock(bg, h))
		time.Sleep(time.Hour)
		r.ExpireUnusedOlderThan(time.Minute)
		must(t, old.Lock(bg, h))
		if obtain(t, r, "old") != old {
			t.Error("there is another lock of a key that is locked")
		}
	})
}

func TestRegistryUnlockAfterASuspendReturnsErrLost(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		must(t, l.Lock(bg, h))
		before := longest.Load()
		defer longest.Store(before)
		longest.Add(int64(time.Hour)) // it wakes when the lease is over, and no timer has fired yet
		if err := l.Unlock(bg, h); !errors.Is(err, client.ErrLost) {
			t.Error(err)
		}
	})
}

func TestTryLockWaitsForAnEarlierReleaseUntilTimeout(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		must(t, l.Lock(bg, h))
		w.guests[0].silence()
		ended, cancel := context.WithCancel(bg)
		cancel()
		_ = l.Unlock(ended, h)
		began := time.Now()
		if ok, err := l.TryLock(bg, h); ok || err == nil || time.Since(began) != 3*time.Second {
			t.Errorf("%v, %v after %v", ok, err, time.Since(began))
		}
		w.guests[0].heal()
		time.Sleep(time.Second)
		tried(t, true)(l.TryLock(bg, h))
		must(t, l.Unlock(bg, h))
	})
}

func TestLockIsNotForgottenDuringItsRelease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r := w.client().registry(t, registry.Config{})
		l, h := obtain(t, r, "x"), r.NewHolder()
		must(t, l.Lock(bg, h))
		w.guests[0].slow(time.Second, 0)
		ended, cancel := context.WithCancel(bg)
		cancel()
		_ = l.Unlock(ended, h)
		time.Sleep(time.Millisecond)
		if n := r.ExpireUnusedOlderThan(0); n != 0 {
			t.Errorf("%d were forgotten", n)
		}
		must(t, l.Lock(bg, h))
		time.Sleep(10 * time.Second)
		if !ours(w.owner("spring:x"), r.ID()) {
			t.Error("a late release has ended a later tenure")
		}
	})
}

func TestRegistryCloseUnlocksAndEndsWaits(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, b *testRegistry) {
		for i := range 10 {
			must(t, obtain(t, a, fmt.Sprint("k", i)).Lock(bg, a.NewHolder()))
		}
		l, h := obtain(t, a, "x"), a.NewHolder()
		must(t, l.Lock(bg, h))
		lb := obtain(t, b, "x")
		got := make(chan error, 4)
		wait := func(l *registry.Lock, h *registry.Holder) {
			go func() { got <- l.Lock(bg, h) }()
			synctest.Wait()
		}
		wait(l, a.NewHolder())
		wait(lb, b.NewHolder()) // waits at the server
		wait(lb, b.NewHolder()) // waits behind the one before
		own := l.Context(h)
		must(t, b.Close())
		must(t, a.Close())
		for range 3 {
			if err := <-got; !errors.Is(err, client.ErrClosed) {
				t.Error(err)
			}
		}
		if !errors.Is(context.Cause(own), client.ErrReleased) {
			t.Error(context.Cause(own))
		}
		w.nothingLeft("spring:x")
		for i := range 10 {
			w.nothingLeft(fmt.Sprint("spring:k", i))
		}
		must(t, l.Unlock(bg, h))
		if err := l.Lock(bg, h); !errors.Is(err, client.ErrClosed) {
			t.Errorf("a closed registry: %v", err)
		}
		if _, err := l.TryLock(bg, h); !errors.Is(err, client.ErrClosed) {
			t.Errorf("a closed registry: %v", err)
		}
		must(t, a.Close())
	})
}

func TestRegistryCloseWaitsForTheServerUntilTimeout(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r := w.client().registry(t, registry.Config{})
		must(t, obtain(t, r, "x").Lock(bg, r.NewHolder()))
		w.guests[0].silence()
		began := time.Now()
		if err := r.Close(); err == nil || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		w.guests[0].heal()
		time.Sleep(10 * time.Second)
		must(t, r.Close())
		w.nothingLeft("spring:x")
	})
}

// ours reports whether an owner is a tenure of the registry with that id.
func ours(owner, id string) bool { return strings.HasPrefix(owner, id+":") }
