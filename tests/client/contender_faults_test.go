package clienttest

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/client"
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
