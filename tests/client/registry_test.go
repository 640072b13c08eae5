package clienttest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/registry"
)

// testRegistry is a Registry with its Client, and the locks that the test has obtained.
type testRegistry struct {
	*registry.Registry
	g     *testClient
	cfg   registry.Config
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
	r := &testRegistry{made, g, cfg, make(map[string]*registry.Lock)}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		locked := 0
		for _, l := range r.locks {
			if l.IsHeldInThisProcess() {
				locked++
			}
		}
		if n := reflect.ValueOf(r.Registry).Elem().FieldByName("entries").Len(); n != locked {
			t.Errorf("the registry remembers %d locks, want %d, those that are locked", n, locked)
		}
	})
	return r
}

func obtain(t *testing.T, r *testRegistry, key string) *registry.Lock {
	t.Helper()
	l := r.Obtain(key)
	r.locks[key] = l
	return l
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

// inBothModes runs a test with and without SpinEvery, in a world with two registries that share
// their locks. The contender ids begin with "a:" and "b:".
func inBothModes(t *testing.T, test func(t *testing.T, w *world, a, b *testRegistry)) {
	for name, every := range map[string]time.Duration{"queue": 0, "spin": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				cfg := registry.Config{ExpireAfter: 10 * time.Second, SpinEvery: every}
				a := w.clientWith(client.Options{IDPrefix: "a:"}).registry(t, cfg)
				b := w.clientWith(client.Options{IDPrefix: "b:"}).registry(t, cfg)
				test(t, w, a, b)
			})
		})
	}
}

// ours reports whether the Client with the prefix id owns spring:x at the server.
func (w *world) ours(id string) bool { return strings.HasPrefix(w.owner("spring:x"), id+":") }

func TestRegistryCloseUnlocksAndEndsWaits(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, b *testRegistry) {
		for i := range 10 {
			must(t, obtain(t, a, fmt.Sprint("k", i)).Lock(bg, a.NewHolder()))
		}
		la, lb, h := obtain(t, a, "x"), obtain(t, b, "x"), a.NewHolder()
		must(t, la.Lock(bg, h))
		got := make(chan error, 3)
		for _, wait := range []func() error{
			func() error { return la.Lock(bg, a.NewHolder()) },
			func() error { return lb.Lock(bg, b.NewHolder()) }, // waits at the server
			func() error { return lb.Lock(bg, b.NewHolder()) }, // waits in the process, behind the first
		} {
			go func() { got <- wait() }()
			synctest.Wait()
		}
		own := la.Context(h)
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
		synctest.Wait()
		w.nothingLeft("spring:x")
		for i := range 10 {
			w.nothingLeft(fmt.Sprint("spring:k", i))
		}
		if err := la.Lock(bg, h); !errors.Is(err, client.ErrClosed) {
			t.Errorf("Lock of a closed registry returns %v, want ErrClosed", err)
		}
		if _, err := la.TryLock(bg, a.NewHolder()); !errors.Is(err, client.ErrClosed) {
			t.Errorf("TryLock of a closed registry returns %v, want ErrClosed", err)
		}
		must(t, la.Unlock(bg, h))
		must(t, a.Close())
	})
}

// The server grants the lock, but the reply comes after Close.
func TestARegistryThatIsClosedDoesNotKeepALateLock(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, got := obtain(t, a, "x"), make(chan error, 2)
		a.g.slow(0, time.Second)
		go func() { got <- l.Lock(bg, a.NewHolder()) }()
		go func() { _, err := obtain(t, a, "y").TryLock(bg, a.NewHolder()); got <- err }()
		time.Sleep(1500 * time.Millisecond) // a second to connect
		must(t, a.Close())
		for range 2 {
			if err := <-got; !errors.Is(err, client.ErrClosed) {
				t.Errorf("the error is %v, want ErrClosed", err)
			}
		}
		time.Sleep(5 * time.Second) // less than the lease
		w.nothingLeft("spring:x")
		w.nothingLeft("spring:y")
	})
}

func TestRegistryOfAClosedClientIsClosed(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		must(t, l.Lock(bg, h))
		must(t, a.g.Close())
		for _, h := range []*registry.Holder{h, a.NewHolder()} {
			if err := l.Lock(bg, h); !errors.Is(err, client.ErrClosed) {
				t.Errorf("Lock returns %v, want ErrClosed", err)
			}
		}
	})
}

func TestRegistryCloseWaitsForTheServerUntilTimeout(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r := w.client().registry(t, registry.Config{})
		must(t, obtain(t, r, "x").Lock(bg, r.NewHolder()))
		r.g.silence()
		began := time.Now()
		if err := r.Close(); !errors.Is(err, client.ErrUnavailable) || time.Since(began) != timeout {
			t.Errorf("Close returns %v after %v, want ErrUnavailable after %v", err, time.Since(began), timeout)
		}
		r.g.heal()
		time.Sleep(10 * time.Second)
		must(t, r.Close())
		w.nothingLeft("spring:x")
	})
}

func TestRegistryWithoutAServer(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		unavailable := func(ok bool, err error) {
			t.Helper()
			if ok || !errors.Is(err, client.ErrUnavailable) {
				t.Errorf("the call returns %v, %v, want ErrUnavailable", ok, err)
			}
		}
		later := func(call func(context.Context, *registry.Holder) error, d time.Duration) { // the server returns after d
			t.Helper()
			got := make(chan error)
			go func() { got <- call(bg, h) }()
			time.Sleep(d)
			w.begin()
			must(t, <-got)
			w.stop()
		}
		w.stop()
		unavailable(l.TryLock(bg, h))
		unavailable(l.TryLockFor(bg, h, 2*time.Second))
		ctx, cancel := context.WithTimeout(bg, 30*time.Second)
		defer cancel()
		if err := l.Lock(ctx, h); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, client.ErrNotAcquired) {
			t.Errorf("Lock returns %v, want ErrNotAcquired and context.DeadlineExceeded", err)
		}
		later(l.Lock, time.Minute)
		unavailable(l.TryLock(bg, h))
		unavailable(false, l.Lock(bg, h))
		later(l.Unlock, 2*time.Second)
		w.begin()
		w.nothingLeft("spring:x")
		must(t, l.Lock(bg, h))
		w.stop()
		unavailable(false, l.Unlock(bg, h))
		w.begin()
		must(t, l.Lock(bg, h)) // the holder has unlocked in spite of the error
		must(t, l.Unlock(bg, h))
		w.tenures("spring:x")
	})
}

func TestTryLockForFailsIfNoReplyCame(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		fails := func() {
			t.Helper()
			a.g.slow(time.Second, 0)
			if ok, err := l.TryLockFor(bg, h, 500*time.Millisecond); ok || !errors.Is(err, client.ErrUnavailable) {
				t.Errorf("TryLockFor returns %v, %v, want ErrUnavailable", ok, err)
			}
			a.g.slow(0, 0)
		}
		fails()
		must(t, l.Lock(bg, h))
		fails() // of the holder, which has the lock
		must(t, l.Unlock(bg, h))
		w.nothingLeft("spring:x")
	})
}

func TestRegistryReturnsRefusalsAtOnce(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		w.withStore().refuses.Store(true)
		_, try := l.TryLock(bg, h)
		_, tryFor := l.TryLockFor(bg, h, time.Minute)
		for _, err := range []error{l.Lock(bg, h), try, tryFor} {
			var refused redis.Error
			if !errors.As(err, &refused) || refused.Error() != noTable || errors.Is(err, client.ErrNotAcquired) || w.elapsed() != 0 {
				t.Errorf("the error is %v after %v, want %q at once", err, w.elapsed(), noTable)
			}
		}
	})
}
