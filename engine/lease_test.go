package engine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

const (
	sec = time.Second
	ms  = time.Millisecond
)

func TestLeaseHasEndedAtTransitionAtExactlyAndNotBefore(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", 10*sec, 2*sec)
		time.Sleep(12*sec - 1)
		if o := w.ask(simba.AcquireRequest{Mutex: "m", Contender: "b", TTL: sec, NoQueue: true}); o.Status != simba.StatusBusy || o.Owner != "a" {
			w.t.Errorf("ACQUIRE a nanosecond before the end of the lease: %+v; want busy with the owner a", o)
		}
		time.Sleep(time.Nanosecond)
		if o := w.acquire("m", "b", sec, 0); o.Status != simba.StatusAcquired {
			w.t.Errorf("ACQUIRE at the end of the lease: %+v; want acquired", o)
		}
	})
}

func TestOwnerGuardsInTheTransitionWindow(t *testing.T) {
	inBubble(t, func(w *world) {
		first := w.acquire("m", "a", 10*sec, 2*sec)
		time.Sleep(12*sec - 1)
		if o := w.guard("m", "a", 3*sec, sec, 0); o.Status != simba.StatusRenewed || o.Token != first.Token || o.TTL != 3*sec || o.Transition != 4*sec {
			w.t.Errorf("GUARD in the last nanosecond of the lease: %+v; want renewed with the new windows", o)
		}
		time.Sleep(4 * sec)
		if o := w.guard("m", "a", sec, 0, 0); o.Status != simba.StatusLost || o.Owner != "" || o.Token != 0 {
			w.t.Errorf("GUARD at the end of the lease: %+v; want lost", o)
		}
	})
}

func TestAnIdleMutexCostsNothing(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("released", "a", sec, 0)
		w.release("released", "a")
		w.acquire("expired", "a", sec, sec)
		w.acquire("expired", "b", sec, sec)
		c := w.block("expired", "c", sec, sec)
		w.owner("never held")
		w.guard("never held", "a", sec, 0, 0)
		<-c.woken
		c.granted()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.audit()
		if s := w.e.Stats(); s.Mutexes != 0 {
			w.t.Errorf("%d mutexes in memory, want 0", s.Mutexes)
		}
		for i := range w.e.shards {
			if n := len(w.e.shards[i].due); n != 0 {
				w.t.Errorf("shard %d has %d deadlines, want 0", i, n)
			}
		}
	})
}

func TestHoldsAreTheLengthsOfTenuresThatEnded(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "a", time.Hour, 0)
		time.Sleep(3 * sec)
		w.acquire("m", "a", time.Hour, 0) // a renewal begins no tenure
		time.Sleep(2 * sec)
		w.release("m", "a")
		w.acquire("n", "a", sec, sec) // expires after 2 s
		w.acquire("still held", "a", time.Hour, 0)
		time.Sleep(time.Minute)
		synctest.Wait()
		if h := w.e.Stats().TenureLengths; h.Count() != 2 || h.Micros != 7_000_000 {
			w.t.Errorf("TenureLengths has %d tenures with a sum of %d µs, want 2 tenures with a sum of 7 s", h.Count(), h.Micros)
		}
	})
}

func TestATenureThatExpiredWhileTheServerWasDownEndsWithItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const minute = time.Minute
		now := simba.Instant(0).Add(time.Hour)
		e, err := New(Config{Clock: NewClock(now), Notices: &recorder{}}, Memory(), Recovery{Token: 1, Leases: leases(simba.Lease{
			Mutex: "m", Owner: "a", Token: 1, TTL: minute, Transition: minute, Acquired: now.Add(-30 * minute),
			StartedAt: time.Now().Add(-40 * minute).UnixMilli(),
		})})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Stop()
		synctest.Wait()
		if h := e.Stats().TenureLengths; h.Count() != 1 || h.Micros != uint64((12*minute).Microseconds()) {
			t.Errorf("TenureLengths has %d tenures with a sum of %d µs, want 1 tenure of 12 min", h.Count(), h.Micros)
		}
	})
}
func TestExpiryGrantsTheNextAtTransitionAtByItself(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.acquire("m", "a", 10*sec, 2*sec)
		start := time.Now()
		b := w.block("m", "b", sec, 0)
		<-b.woken
		if took := time.Since(start); took != 12*sec {
			w.t.Errorf("the mutex was handed off after %v, want 12 s", took)
		}
		if o := b.granted(); o.Token <= a.Token {
			w.t.Errorf("b was granted %+v; want a larger token", o)
		}
	})
}

func TestQueueIsFirstComeFirstServed(t *testing.T) {
	inBubble(t, func(w *world) {
		w.acquire("m", "owner", time.Hour, 0)
		var waiting []*blocked
		for i := range 100 { // enough for the queue to index its entries by name
			waiting = append(waiting, w.block("m", fmt.Sprintf("c%02d", 99-i), time.Hour, 0))
		}
		last := "owner"
		for i, b := range waiting {
			w.release("m", last)
			last = b.granted().Owner
			if want := fmt.Sprintf("c%02d", 99-i); last != want {
				w.t.Fatalf("handoff %d: the mutex went to %s, want %s", i, last, want)
			}
			w.audit()
		}
	})
}
