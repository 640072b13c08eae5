package clienttest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
)

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
