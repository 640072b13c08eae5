package commands

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// If a counter falls, a metrics system assumes that the server was restarted, and computes a huge
// rate.
func TestNoCounterOfACommandGoesBackwards(t *testing.T) {
	x := newSite(t, Config{}).x
	e := x.table.named([]byte("ping"))
	for range 1000 {
		e.tally.add(time.Microsecond, false)
	}
	var failing sync.WaitGroup
	var stop atomic.Bool
	failing.Go(func() {
		for !stop.Load() {
			e.tally.add(time.Microsecond, true)
		}
	})
	defer failing.Wait()
	defer stop.Store(true)
	var last CommandStats
	for range 5000 {
		now := x.Stats().Commands[0]
		if now.Succeeded != 1000 || now.Failed < last.Failed || now.Calls.Count() < last.Calls.Count() {
			t.Fatalf("Stats returned %+v after %+v: a counter fell, or Succeeded is not 1000", now, last)
		}
		last = now
	}
}

func TestTheSumOfLongWaitsDoesNotOverflow(t *testing.T) {
	x := newSite(t, Config{}).x
	for range 200_000 {
		x.observers.stats.waited.add(24 * time.Hour) // 548 years in all
	}
	const sum = 200_000 * 24 * 3600 * 1_000_000 // µs
	if got := x.Stats().Waits; got.Count() != 200_000 || got.Micros != sum {
		t.Errorf("Stats returned %d waits of %d µs in all, want 200000 waits of %d µs in all", got.Count(), got.Micros, uint64(sum))
	}
}
