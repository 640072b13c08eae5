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

// testRegistry is a Registry with the locks that the test has obtained.
type testRegistry struct {
	*registry.Registry
	mode  registry.Mode
	locks map[string]*registry.Lock
}

// registry returns a Registry, and closes it when the test ends. The Registry must then remember
// only locks that are locked.
func (g *testClient) registry(t *testing.T, cfg registry.Config) *testRegistry {
	t.Helper()
	if cfg.Prefix == "" {
		cfg.Prefix = "spring"
	}
	made, err := registry.New(g.Client, cfg)
	must(t, err)
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
				t.Errorf("Obtain(%s) returns a remembered lock that is not locked, or an error: %v", key, err)
			}
		}
	})
	return r
}

func obtain(t *testing.T, r *testRegistry, key string) *registry.Lock {
	t.Helper()
	l, err := r.Obtain(key)
	must(t, err)
	r.locks[key] = l
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tried returns a function that fails the test unless it gets want and no error.
func tried(t *testing.T, want bool) func(bool, error) {
	t.Helper()
	return func(ok bool, err error) {
		t.Helper()
		if ok != want || err != nil {
			t.Fatalf("the call returns %v, %v, want %v", ok, err, want)
		}
	}
}

// inBothModes runs a test in both modes, in a world with two registries that share their locks.
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
			t.Error("Obtain returns different locks for one key, or one lock for two keys")
		}
		h := r.NewHolder()
		must(t, l.Lock(bg, h))
		if !ours(w.owner("spring:x"), r.ID()) {
			t.Errorf("%q owns spring:x, want the registry", w.owner("spring:x"))
		}
		must(t, l.Unlock(bg, h))
	})
}

func TestObtainRejectsInvalidKeys(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r := w.client().registry(t, registry.Config{})
		for _, key := range []string{"", "a b", "a{b", strings.Repeat("x", 255), "\x00"} {
			if _, err := r.Obtain(key); err == nil {
				t.Errorf("Obtain of the key %q returns nil, want an error", key)
			}
		}
	})
}

func TestRegistryForgetsTheLeastRecentlyUsedThatIsNotLocked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r := w.client().registry(t, registry.Config{Capacity: 3})
		h := r.NewHolder()
		one, two, three := obtain(t, r, "1"), obtain(t, r, "2"), obtain(t, r, "3")
		must(t, one.Lock(bg, h))
		obtain(t, r, "2") // now 3 is the least recently used one
		four := obtain(t, r, "4")
		if obtain(t, r, "1") != one || obtain(t, r, "2") != two || obtain(t, r, "4") != four {
			t.Error("the registry has forgotten another lock than 3")
		}
		if obtain(t, r, "3") == three {
			t.Error("the registry remembers 3, the least recently used lock")
		}
		// A forgotten Lock still locks its mutex.
		must(t, three.Lock(bg, h))
		tried(t, false)(obtain(t, r, "3").TryLock(bg, r.NewHolder()))
		must(t, obtain(t, r, "3").Unlock(bg, h))
		// More locks than Capacity may be locked.
		for i := range 10 {
			must(t, obtain(t, r, fmt.Sprint("m", i)).Lock(bg, h))
		}
		if n := r.ExpireUnusedOlderThan(-1); n != 0 {
			t.Errorf("the registry remembers %d locks that are not locked, want 0", n)
		}
		for i := range 10 {
			must(t, obtain(t, r, fmt.Sprint("m", i)).Unlock(bg, h))
		}
		must(t, one.Unlock(bg, h))
		synctest.Wait()
		if n := r.ExpireUnusedOlderThan(-1); n != 3 {
			t.Errorf("the registry remembers %d locks, want 3", n)
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
			t.Errorf("ExpireUnusedOlderThan returns %d, want 0", n)
		}
		time.Sleep(time.Second)
		if n := r.ExpireUnusedOlderThan(10 * time.Minute); n != 1 {
			t.Errorf("ExpireUnusedOlderThan returns %d, want 1", n)
		}
		if obtain(t, r, "held") != held || obtain(t, r, "young") != young || obtain(t, r, "old") == old {
			t.Error("the registry has forgotten another lock than old")
		}
		must(t, held.Unlock(bg, h))
		time.Sleep(time.Hour)
		r.ExpireUnusedOlderThan(time.Minute)
		must(t, old.Lock(bg, h))
		if obtain(t, r, "old") != old {
			t.Error("Obtain returns a new lock for a key that is locked")
		}
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
			t.Errorf("ExpireUnusedOlderThan returns %d, want 0", n)
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
		wait(lb, b.NewHolder()) // waits in the process, behind the first
		own := l.Context(h)
		must(t, b.Close())
		must(t, a.Close())
		for range 3 {
			if err := <-got; !errors.Is(err, client.ErrClosed) {
				t.Errorf("the error is %v, want ErrClosed", err)
			}
		}
		if !errors.Is(context.Cause(own), client.ErrReleased) {
			t.Errorf("the cause of the ownership's end is %v, want ErrReleased", context.Cause(own))
		}
		w.nothingLeft("spring:x")
		for i := range 10 {
			w.nothingLeft(fmt.Sprint("spring:k", i))
		}
		must(t, l.Unlock(bg, h))
		if err := l.Lock(bg, h); !errors.Is(err, client.ErrClosed) {
			t.Errorf("a call of a closed registry returns %v, want ErrClosed", err)
		}
		if _, err := l.TryLock(bg, h); !errors.Is(err, client.ErrClosed) {
			t.Errorf("a call of a closed registry returns %v, want ErrClosed", err)
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
			t.Errorf("Close returns %v after %v, want an error after 3s", err, time.Since(began))
		}
		w.guests[0].heal()
		time.Sleep(10 * time.Second)
		must(t, r.Close())
		w.nothingLeft("spring:x")
	})
}

// ours reports whether an owner belongs to the registry id.
func ours(owner, id string) bool { return strings.HasPrefix(owner, id+":") }

func TestRegistryUnlockContinuesInTheBackground(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, b *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		ended, cancel := context.WithCancel(bg)
		cancel()
		must(t, l.Lock(bg, h))
		own := l.Context(h)
		w.guests[0].slow(time.Second, 0)
		if err := l.Unlock(ended, h); !errors.Is(err, context.Canceled) {
			t.Errorf("Unlock returns %v, want context.Canceled", err)
		}
		if own.Err() == nil || l.IsHeldInThisProcess() || !ours(w.owner("spring:x"), "a") {
			t.Error("want the lock unlocked in the process, and still locked at the server")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		w.nothingLeft("spring:x")
		must(t, l.Lock(bg, h))
		_ = l.Unlock(ended, h)
		must(t, l.Lock(bg, h)) // the late release must not end this tenure
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
			t.Errorf("TryLock returns %v, %v, want an error", ok, err)
		}
		if ok, err := l.TryLockFor(bg, h, 2*time.Second); ok || err == nil || !strings.Contains(err.Error(), "no reply in time") && !strings.Contains(err.Error(), "refused") {
			t.Errorf("TryLockFor returns %v, %v, want an error of the last request", ok, err)
		}
		ctx, cancel := context.WithTimeout(bg, 30*time.Second)
		if err := l.Lock(ctx, h); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock returns %v, want context.DeadlineExceeded", err)
		}
		cancel()
		got := make(chan error)
		go func() { got <- l.Lock(bg, h) }()
		time.Sleep(time.Minute)
		w.begin()
		must(t, <-got)
		w.stop()
		if ok, err := l.TryLock(bg, h); ok || err == nil {
			t.Errorf("a second TryLock returns %v, %v, want an error", ok, err)
		}
		w.begin()
		must(t, l.Lock(bg, h))
		must(t, l.Unlock(bg, h))
		w.stop()
		go func() { got <- l.Unlock(bg, h) }() // Unlock waits for the server
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
			t.Errorf("TryLockFor returns %v, %v, want no reply in time", ok, err)
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
			t.Errorf("Unlock returns %v after %v, want ErrUnavailable", err, time.Since(began))
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
			var refused redis.Error
			return errors.As(err, &refused) && refused.Error() == noTable
		}
		if err := l.Lock(bg, h); err == nil || errors.Is(err, client.ErrNotAcquired) || !refused(err) {
			t.Error(err)
		}
		if ok, err := l.TryLock(bg, h); ok || !refused(err) {
			t.Errorf("TryLock returns %v, %v, want %q", ok, err, noTable)
		}
		if ok, err := l.TryLockFor(bg, h, time.Minute); ok || !refused(err) || w.elapsed() != 0 {
			t.Errorf("TryLockFor returns %v, %v after %v, want %q at once", ok, err, w.elapsed(), noTable)
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
			t.Errorf("TryLock returns %v, %v after %v, want an error after 3s", ok, err, time.Since(began))
		}
		w.guests[0].heal()
		time.Sleep(time.Second)
		tried(t, true)(l.TryLock(bg, h))
		must(t, l.Unlock(bg, h))
	})
}
