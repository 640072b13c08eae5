package mysql

import (
	"math"
	"testing"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// FuzzRow checks rows with any times, since Simba's contenders and people write rows too. A running
// lease has time left, and an ended one has none.
func FuzzRow(f *testing.F) {
	const now = 1790000000000
	f.Add(int64(now-500), int64(now+500), int64(now+1500), int64(now))
	f.Add(int64(0), int64(0), int64(0), int64(now))
	// The clock was read before the lease began.
	f.Add(int64(now+30), int64(now+1030), int64(now+2030), int64(now))
	// This lease has no end.
	f.Add(int64(now), int64(math.MaxInt64), int64(math.MaxInt64), int64(now))
	f.Add(int64(math.MinInt64), int64(math.MinInt64), int64(math.MinInt64), int64(now)) // invalid
	f.Fuzz(func(t *testing.T, acquiredAt, ttlAt, transitionAt, now int64) {
		if now = now &^ (-1 << 63); now > 1<<43 {
			return // impossible in a database
		}
		r := row{State: proxy.State{AcquiredAt: acquiredAt, TTLAt: ttlAt, TransitionAt: transitionAt, Now: now}}
		r.derive()
		if r.Live != (transitionAt > now) {
			t.Errorf("Live of the row %+v does not match its times", r)
		}
		left := proxy.Between(r.Now, r.TransitionAt)
		// If the lease starts after the clock was read, derive has changed Now.
		if left < 0 || !r.Live && left > 0 || r.Live && left == 0 && r.Now == now || left > proxy.MaxBetween {
			t.Errorf("row %+v has %v left, impossible for a row with Live = %v", r, left, r.Live)
		}
	})
}
