package clienttest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/client"
)

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
