package clienttest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/registry"
)

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
			t.Errorf("the tokens are %d, %d, %d, want the same token", token, l.Token(), client.Token(l.Context(h)))
		}
		if !errors.Is(context.Cause(l.Context(other)), registry.ErrNotHolder) || !errors.Is(context.Cause(l.Context(nil)), registry.ErrNotHolder) {
			t.Error("a holder without the lock has an ownership context")
		}
		own := l.Context(h)
		for range 3 {
			must(t, l.Unlock(bg, h))
			if !ours(w.owner("spring:x"), "a") || own.Err() != nil || !l.IsHeldInThisProcess() {
				t.Fatal("the lock is free, but the holder has locked it more often than unlocked it")
			}
		}
		must(t, l.Unlock(bg, h))
		w.nothingLeft("spring:x")
		if !errors.Is(context.Cause(own), client.ErrReleased) || l.IsHeldInThisProcess() || l.Token() != 0 {
			t.Error("the holder still has the lock after the last Unlock")
		}
		if err := l.Unlock(bg, h); !errors.Is(err, registry.ErrNotHolder) {
			t.Errorf("one Unlock too many returns %v, want ErrNotHolder", err)
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
				t.Errorf("Unlock returns %v, want ErrNotHolder", err)
			}
		}
		if !ours(w.owner("spring:x"), "a") || l.Context(h).Err() != nil {
			t.Error("Unlock of another holder has unlocked the lock")
		}
		if err := l.Lock(bg, nil); err == nil {
			t.Error("Lock without a holder returns nil, want an error")
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
			t.Errorf("TryLockFor waited %v, want 2s", d)
		}
		synctest.Wait()
		if q := w.queue("spring:x"); len(q) != 0 {
			t.Errorf("the queue is %q after all waiters have given up, want no waiter", q)
		}
		got := make(chan error)
		go func() { got <- lb.Lock(bg, hb) }()
		time.Sleep(3 * time.Second)
		if q := w.queue("spring:x"); (len(q) == 1) != (b.mode == registry.Notified) {
			t.Errorf("in the mode %v the queue is %q, want one waiter only in the mode notified", b.mode, q)
		}
		must(t, la.Unlock(bg, ha))
		freed := time.Now()
		must(t, <-got)
		if d := time.Since(freed); b.mode == registry.Notified && d != 0 || d > spinEvery {
			t.Errorf("the next registry got the lock after %v, want at once (spinning: within a period)", d)
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
			t.Errorf("Lock returned after %v, want 1.4s", d)
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
					t.Error("two holders have the lock at a time")
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
				t.Fatalf("the holders got the lock in the order %v, want the order of their calls", order)
			}
		}
		if got := w.tenures("spring:x"); len(got) != n {
			t.Errorf("there are %d tenures, want one for each of %d holders", len(got), n)
		}
		w.nothingLeft("spring:x")
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
		if all := w.tenures("spring:x"); len(all) != 1 || all[0].To != 0 {
			t.Errorf("the tenures are %+v, want one that still runs", all)
		}
		// The last Unlock comes during another call of Lock, so the lock stays locked.
		for range n - 1 {
			must(t, l.Unlock(bg, h))
		}
		go func() { got <- l.Lock(bg, h) }()
		synctest.Wait()
		must(t, l.Unlock(bg, h))
		must(t, <-got)
		if !l.IsHeldInThisProcess() || l.Context(h).Err() != nil {
			t.Error("the holder does not have the lock")
		}
		go func() { got <- l.Lock(bg, h) }()
		synctest.Wait()
		w.breakOff("spring:x") // the next renewal fails
		must(t, l.Unlock(bg, h))
		if err := <-got; !errors.Is(err, client.ErrLost) || l.IsHeldInThisProcess() {
			t.Errorf("the error is %v, want ErrLost", err)
		}
		must(t, l.Lock(bg, a.NewHolder()))
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
			fault(w.guests[0])
			ctx, cancel := context.WithTimeout(bg, 500*time.Millisecond)
			err := la.Lock(ctx, ha)
			if !errors.Is(err, client.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Lock returns %v, want ErrNotAcquired and context.DeadlineExceeded", err)
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
				t.Error("the holder has the lock, although its Lock returned an error")
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
			t.Errorf("the error is %v, want context.Canceled and ErrNotAcquired", err)
		}
		must(t, l.Unlock(bg, h))
		must(t, <-got)
		must(t, l.Unlock(bg, third))
	})
}

func TestRegistryLeaseIsNotRenewed(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, b *testRegistry) {
		la, lb := obtain(t, a, "x"), obtain(t, b, "x")
		ha, hb := a.NewHolder(), b.NewHolder()
		must(t, lb.Lock(bg, hb))
		got := make(chan error)
		go func() { got <- la.Lock(bg, ha) }() // a waiter subscribes to notices
		time.Sleep(time.Second)
		must(t, lb.Unlock(bg, hb))
		must(t, <-got)
		own, since := la.Context(ha), time.Now()
		time.Sleep(5 * time.Second)
		w.guests[0].cut() // the client subscribes again, which must not renew the lease either
		<-own.Done()
		if d := time.Since(since); d >= 10*time.Second || d < 9800*time.Millisecond || !errors.Is(context.Cause(own), client.ErrLost) {
			t.Errorf("the ownership ended after %v with the cause %v, want ErrLost just before 10s", d, context.Cause(own))
		}
		if !la.IsHeldInThisProcess() || la.Token() != client.Token(own) {
			t.Error("the process counts the lock as unlocked before its holder has unlocked it")
		}
		if err := la.Lock(bg, ha); !errors.Is(err, client.ErrLost) {
			t.Errorf("Lock of a lost lock returns %v, want ErrLost", err)
		}
		tried(t, false)(la.TryLock(bg, a.NewHolder()))
		time.Sleep(time.Second)
		must(t, lb.Lock(bg, hb)) // another registry can lock it
		err := la.Unlock(bg, ha)
		if !errors.Is(err, client.ErrLost) || !strings.Contains(err.Error(), "integrity of data protected by this lock may have been compromised") {
			t.Errorf("Unlock of a lost lock returns %v, want ErrLost", err)
		}
		if !ours(w.owner("spring:x"), "b") || la.IsHeldInThisProcess() {
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

func TestUnlockReturnsErrLostIfTheServerHasNoLock(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world, a, _ *testRegistry) {
		l, h := obtain(t, a, "x"), a.NewHolder()
		must(t, l.Lock(bg, h))
		w.breakOff("spring:x")
		if err := l.Unlock(bg, h); !errors.Is(err, client.ErrLost) || !strings.Contains(err.Error(), "integrity") {
			t.Errorf("Unlock returns %v, want ErrLost", err)
		}
		must(t, l.Lock(bg, h))
		w.breakOff("spring:x")
		if err := l.Lock(bg, h); !errors.Is(err, client.ErrLost) {
			t.Errorf("a second Lock returns %v, want ErrLost", err)
		}
		if err := l.Unlock(bg, h); !errors.Is(err, client.ErrLost) {
			t.Errorf("Unlock returns %v, want ErrLost", err)
		}
	})
}
