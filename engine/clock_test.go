package engine

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

// stepped is a wall clock that a test sets.
type stepped struct{ by atomic.Int64 }

func (s *stepped) now() time.Time { return time.Now().Add(time.Duration(s.by.Load())) }

func (s *stepped) step(d time.Duration) { s.by.Add(int64(d)) }

func TestAClockMatchesItsSourceThoughReadingsAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boot := time.Now().Add(-time.Hour)
		readings := 0
		read := func() simba.Instant {
			if readings++; readings%7 != 3 {
				time.Sleep(time.Duration(readings) * time.Millisecond) // a slow reading
				defer time.Sleep(time.Millisecond)
			}
			return simba.Instant(time.Since(boot))
		}
		c := ClockOf(read)
		time.Sleep(time.Minute)
		if got, want := c.Now(), simba.Instant(time.Since(boot)); got != want {
			t.Errorf("the clock differs by %v from its source", time.Duration(got-want))
		}
	})
}

func TestAClockIsNeverAheadOfItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boot := time.Now().Add(-time.Hour)
		c := ClockOf(func() simba.Instant {
			time.Sleep(time.Microsecond)
			defer time.Sleep(time.Microsecond)
			return simba.Instant(time.Since(boot))
		})
		if got, want := c.Now(), simba.Instant(time.Since(boot)); got > want || want.Sub(got) > 2*time.Microsecond {
			t.Errorf("the clock is ahead of its source by %v, want between -2 µs and 0", time.Duration(got-want))
		}
	})
}

func TestAStepOfTheWallClockNeitherCutsNorExtendsALease(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, -5 * sec, 5 * sec, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var wall stepped
			e, err := New(Config{Clock: NewClock(1000).WithWall(wall.now), Notices: &recorder{}}, Memory(), Recovery{})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Stop()
			w := &world{t: t, e: e, recorder: &recorder{}}
			w.acquire("m", "a", 8*sec, 2*sec)
			b := w.block("m", "b", sec, 0)
			start := time.Now()
			time.Sleep(4 * sec)
			wall.step(step)
			if got := w.owner("m"); got.Owner != "a" || got.TTL != 4*sec || got.Transition != 6*sec {
				t.Errorf("OWNER after a step of %v: %+v; want 4 s and 6 s left", step, got)
			}
			<-b.woken
			if took := time.Since(start); took != 10*sec {
				t.Errorf("with a step of the wall clock by %v the lease ended after %v, want 10 s", step, took)
			}
			if got := w.owner("m").AcquiredAt; got != wall.now().UnixMilli() {
				t.Errorf("AcquiredAt is %d, want the wall time %d", got, wall.now().UnixMilli())
			}
			w.release("m", "b")
		})
	}
}
