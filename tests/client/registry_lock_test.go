package clienttest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/registry"
)

func TestRegistryLockIsReentrantForItsHolderOnly(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, again := obtain(t, a, "x"), obtain(t, a, "x")
		h, other := a.NewHolder(), a.NewHolder()
		must(t, l.Lock(bg, h))
		token := client.Token(l.Context(h))
		must(t, again.Lock(bg, h))
		tried(t, true)(l.TryLock(bg, h))
		tried(t, true)(l.TryLockFor(bg, h, time.Second))
		tried(t, false)(again.TryLock(bg, other))
		tried(t, false)(l.TryLockFor(bg, other, time.Second))
		if token == 0 || client.Token(again.Context(h)) != token {
			t.Errorf("the tokens are %d and %d, want the same token", token, client.Token(again.Context(h)))
		}
		for _, other := range []*registry.Holder{nil, other} {
			if err := l.Unlock(bg, other); !errors.Is(err, registry.ErrNotHolder) || err.Error() != "you do not own the lock at spring:x" {
				t.Errorf("Unlock of another holder returns %v, want ErrNotHolder", err)
			}
			if !errors.Is(context.Cause(l.Context(other)), registry.ErrNotHolder) {
				t.Error("a holder without the lock has an ownership context")
			}
		}
		if err := l.Lock(bg, nil); err == nil {
			t.Error("Lock without a holder returns nil, want an error")
		}
		own := l.Context(h)
		for range 3 {
			must(t, l.Unlock(bg, h))
			if !w.ours("a") || own.Err() != nil || !again.IsHeldInThisProcess() {
				t.Fatal("the lock is free, but the holder has locked it more often than unlocked it")
			}
		}
		must(t, again.Unlock(bg, h))
		synctest.Wait() // the other holder has given up in the background
		w.nothingLeft("spring:x")
		if !errors.Is(context.Cause(own), client.ErrReleased) || l.IsHeldInThisProcess() {
			t.Error("the holder still has the lock after the last Unlock")
		}
		if err := l.Unlock(bg, h); !errors.Is(err, registry.ErrNotHolder) {
			t.Errorf("one Unlock too many returns %v, want ErrNotHolder", err)
		}
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
			t.Errorf("TryLockFor waited %v, want 2s", d)
		}
		synctest.Wait()
		if q := w.queue("spring:x"); len(q) != 0 {
			t.Errorf("the queue is %q after all waiters have given up, want no waiter", q)
		}
		got := make(chan error)
		go func() { got <- lb.Lock(bg, hb) }()
		time.Sleep(3 * time.Second)
		if q := w.queue("spring:x"); (len(q) == 0) != (b.cfg.SpinEvery != 0) {
			t.Errorf("with SpinEvery %v the queue is %q, want a waiter only without it", b.cfg.SpinEvery, q)
		}
		must(t, la.Unlock(bg, ha))
		freed := time.Now()
		must(t, <-got)
		if d := time.Since(freed); d > b.cfg.SpinEvery {
			t.Errorf("the next registry got the lock after %v, want at once (spinning: within SpinEvery)", d)
		}
		must(t, lb.Unlock(bg, hb))
		w.nothingLeft("spring:x")
		w.tenures("spring:x")
	})
}

func TestSpinSendsARequestEverySpinEvery(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.client().registry(t, registry.Config{})
		b := w.client().registry(t, registry.Config{SpinEvery: 700 * time.Millisecond})
		ha := a.NewHolder()
		must(t, obtain(t, a, "x").Lock(bg, ha))
		time.AfterFunc(800*time.Millisecond, func() {
			if err := obtain(t, a, "x").Unlock(bg, ha); err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		must(t, obtain(t, b, "x").Lock(bg, b.NewHolder()))
		if d := time.Since(began); d != 1400*time.Millisecond {
			t.Errorf("Lock returned after %v, want 1.4s", d)
		}
	})
}

func TestAHolderAsksInOneCallAtATime(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h, other := obtain(t, a, "x"), a.NewHolder(), a.NewHolder()
		must(t, l.Lock(bg, other))
		got := make(chan error)
		go func() { got <- l.Lock(bg, h) }()
		synctest.Wait()
		if ok, err := l.TryLock(bg, h); ok || !errors.Is(err, client.ErrInUse) {
			t.Errorf("TryLock returns %v, %v while the holder waits, want ErrInUse", ok, err)
		}
		must(t, l.Unlock(bg, other))
		must(t, <-got)
		must(t, l.Unlock(bg, h))
	})
}

func TestCanceledRegistryLockIsNotOwnedLater(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, b *testRegistry) {
		la, lb := obtain(t, a, "x"), obtain(t, b, "x")
		ha, hb := a.NewHolder(), b.NewHolder()
		ended, cancel := context.WithCancel(bg)
		cancel()
		if err := la.Lock(ended, ha); !errors.Is(err, context.Canceled) || len(w.history("spring:x")) != 0 {
			t.Errorf("Lock with a context that has ended returns %v, want context.Canceled and no request", err)
		}
		for _, fault := range []func(g *testClient){
			func(*testClient) {},                           // Lock waits for another owner
			func(g *testClient) { g.slow(time.Second, 0) }, // the request is in flight
			func(g *testClient) { g.slow(0, time.Second) }, // the reply is in flight
			func(g *testClient) { g.slow(time.Minute, 0) }, // the request arrives long after
			func(g *testClient) { g.silence() },
		} {
			must(t, lb.Lock(bg, hb))
			fault(a.g)
			ctx, cancel := context.WithTimeout(bg, 500*time.Millisecond)
			if err := la.Lock(ctx, ha); !errors.Is(err, client.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Lock returns %v, want ErrNotAcquired and context.DeadlineExceeded", err)
			}
			cancel()
			must(t, lb.Unlock(bg, hb))
			time.Sleep(time.Minute)
			a.g.heal()
			a.g.slow(0, 0)
			a.g.cut()
			time.Sleep(5 * time.Minute)
			w.nothingLeft("spring:x")
			if la.IsHeldInThisProcess() {
				t.Error("the holder has the lock, although its Lock returned an error")
			}
		}
		must(t, la.Lock(bg, ha))
		must(t, la.Unlock(bg, ha))
		w.tenures("spring:x")
	})
}

func TestRegistryUnlockContinuesInTheBackground(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		ended, cancel := context.WithCancel(bg)
		cancel()
		must(t, l.Lock(bg, h))
		own := l.Context(h)
		a.g.slow(time.Second, 0)
		if err := l.Unlock(ended, h); !errors.Is(err, context.Canceled) {
			t.Errorf("Unlock returns %v, want context.Canceled", err)
		}
		if own.Err() == nil || l.IsHeldInThisProcess() || !w.ours("a") {
			t.Error("want the lock unlocked in the process, and still locked at the server")
		}
		must(t, l.Lock(bg, h)) // the late release must not end this tenure
		time.Sleep(5 * time.Second)
		if !w.ours("a") || l.Context(h).Err() != nil {
			t.Error("a late release has ended a later tenure")
		}
		must(t, l.Unlock(bg, h))
		w.nothingLeft("spring:x")
	})
}

func TestRegistryLeaseIsNotRenewed(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, b *testRegistry) {
		la, lb := obtain(t, a, "x"), obtain(t, b, "x")
		ha, hb := a.NewHolder(), b.NewHolder()
		must(t, la.Lock(bg, ha))
		own, since := la.Context(ha), time.Now()
		time.Sleep(5 * time.Second)
		a.g.cut() // the client subscribes again, which must not renew the lease
		<-own.Done()
		if d := time.Since(since); d != 9900*time.Millisecond || !errors.Is(context.Cause(own), client.ErrLost) {
			t.Errorf("the ownership ended after %v with the cause %v, want ErrLost after 9.9s", d, context.Cause(own))
		}
		if !la.IsHeldInThisProcess() || la.Context(ha) != own {
			t.Error("the process counts the lock as unlocked before its holder has unlocked it")
		}
		if err := la.Lock(bg, ha); !errors.Is(err, client.ErrLost) {
			t.Errorf("Lock of a lost lock returns %v, want ErrLost", err)
		}
		time.Sleep(time.Second)
		must(t, lb.Lock(bg, hb)) // another registry can lock it
		tried(t, false)(la.TryLock(bg, a.NewHolder()))
		err := la.Unlock(bg, ha)
		if !errors.Is(err, client.ErrLost) {
			t.Errorf("Unlock of a lost lock returns %v, want ErrLost", err)
		}
		if !w.ours("b") || la.IsHeldInThisProcess() {
			t.Errorf("after Unlock %q owns the lock, want b; or a still has it", w.owner("spring:x"))
		}
		must(t, lb.Unlock(bg, hb))
		must(t, la.Lock(bg, ha)) // after Unlock the holder can lock again
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
			t.Errorf("the ownership has ended with the cause %v, or there are several tenures; want one tenure", context.Cause(own))
		}
		for range 11 {
			must(t, l.Unlock(bg, h))
		}
		w.nothingLeft("spring:x")
	})
}

func TestRegistryWithRenewKeepsItsLocks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		r := w.client().registry(t, registry.Config{ExpireAfter: time.Second, Renew: true})
		l, h := obtain(t, r, "x"), r.NewHolder()
		must(t, l.Lock(bg, h))
		time.Sleep(time.Hour)
		if l.Context(h).Err() != nil || len(w.tenures("spring:x")) != 1 {
			t.Errorf("after an hour the cause of the ownership's end is %v, want none, and one tenure", context.Cause(l.Context(h)))
		}
		must(t, l.Unlock(bg, h))
		time.Sleep(time.Minute)
		w.nothingLeft("spring:x")
	})
}

// The first check is in progress when the mutex is broken, and its reply says that the lease lasts.
func TestBreakDuringACheckIsNoticed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		l, err := g.Lock(bg, "job", client.WithTTL(time.Hour), client.WithoutRenewal())
		must(t, err)
		g.slow(0, 500*time.Millisecond) // the replies
		time.Sleep(time.Second + 600*time.Millisecond)
		w.breakOff("job")
		at := w.elapsed()
		<-l.Context().Done()
		if took := w.elapsed() - at; took > 2*time.Second {
			t.Errorf("the context ends %v after BREAK, want at most 2 s", took)
		}
		g.slow(0, 0)
	})
}

func TestBreakIsNoticedByLockAndUnlock(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		for range 2 {
			must(t, l.Lock(bg, h))
			w.breakOff("spring:x")
			if err := l.Unlock(bg, h); !errors.Is(err, client.ErrLost) {
				t.Errorf("Unlock returns %v, want ErrLost", err)
			}
		}
		must(t, l.Lock(bg, h))
		w.breakOff("spring:x")
		for _, call := range []func(context.Context, *registry.Holder) error{l.Lock, l.Unlock} {
			if err := call(bg, h); !errors.Is(err, client.ErrLost) {
				t.Errorf("the call returns %v, want ErrLost", err)
			}
		}
	})
}
