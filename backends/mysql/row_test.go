package mysql

import (
	"math"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// FuzzRow checks rows with any times, since Simba's contenders and people write rows too. A running
// lease has time left, and an ended one has none. No row makes a server read it in a busy loop.
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
		r := row{acquiredAt: acquiredAt, ttlAt: ttlAt, transitionAt: transitionAt, now: now}
		r.derive()
		if r.live != (transitionAt > now) {
			t.Errorf("live of the row %+v does not match its times", r)
		}
		left, ttl := r.left(), r.ttlLeft()
		// If the lease starts after the clock was read, derive has changed now.
		if left < 0 || ttl < 0 || !r.live && left > 0 || r.live && left == 0 && r.now == now || left > proxy.MaxBetween || ttl > proxy.MaxBetween {
			t.Errorf("row %+v: left is %v and ttlLeft is %v, impossible for a row with live = %v", r, left, ttl, r.live)
		}
		b := &Backend{}
		if p := b.refreshDelay(r); r.live && left > time.Minute && p < left-time.Second {
			t.Errorf("row %+v is read again after %v, too early", r, p)
		}
	})
}
