package mysql

import (
	"math"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// FuzzRow checks that whatever times a row has, which Simba's contenders and people write too, a lease that runs has
// something left, one that does not has nothing, and neither makes a server look again and again.
func FuzzRow(f *testing.F) {
	const now = 1790000000000
	f.Add(int64(now-500), int64(now+500), int64(now+1500), int64(now))
	f.Add(int64(0), int64(0), int64(0), int64(now))
	f.Add(int64(now+30), int64(now+1030), int64(now+2030), int64(now))                  // the clock was read before
	f.Add(int64(now), int64(math.MaxInt64), int64(math.MaxInt64), int64(now))           // without end
	f.Add(int64(math.MinInt64), int64(math.MinInt64), int64(math.MinInt64), int64(now)) // nonsense
	f.Fuzz(func(t *testing.T, acquiredAt, ttlAt, transitionAt, now int64) {
		if now = now &^ (-1 << 63); now > 1<<43 {
			return // no database shows that
		}
		r := row{acquiredAt: acquiredAt, ttlAt: ttlAt, transitionAt: transitionAt, now: now}
		r.derive()
		if r.live != (transitionAt > now) {
			t.Errorf("%+v", r)
		}
		left, ttl := r.left(), r.ttlLeft()
		// A start that lies after the reading of the clock takes its ms off.
		if left < 0 || ttl < 0 || !r.live && left > 0 || r.live && left == 0 && r.now == now || left > proxy.MaxRemaining || ttl > proxy.MaxRemaining {
			t.Errorf("%+v has %v and %v left", r, left, ttl)
		}
		b := &Backend{}
		if p := b.refreshDelay(r); r.live && left > time.Minute && p < left-time.Second {
			t.Errorf("%+v is looked at again after %v", r, p)
		}
	})
}
