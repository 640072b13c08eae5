package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

const (
	sec = time.Second
	ms  = time.Millisecond
)

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
