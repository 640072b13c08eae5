package simba

import (
	"math"
	"testing"
	"time"
)

func TestDurationBucketHoldsDurationsUpToAPowerOfTwoMicroseconds(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want int
	}{
		{-time.Second, 0}, {0, 0}, {1, 0}, {time.Microsecond, 0}, {time.Microsecond + 1, 1},
		{2 * time.Microsecond, 1}, {2*time.Microsecond + 1, 2}, {time.Millisecond, 10},
		{1024 * time.Microsecond, 10}, {1<<38*time.Microsecond - 1, 38}, {1 << 38 * time.Microsecond, 38},
		{1<<38*time.Microsecond + 1, DurationBuckets - 1}, {math.MaxInt64, DurationBuckets - 1},
	} {
		if got := DurationBucket(c.d); got != c.want {
			t.Errorf("DurationBucket(%v) is %d, want %d", c.d, got, c.want)
		}
	}
}

func TestDurationsAddUp(t *testing.T) {
	var a, b Durations
	a.Add(time.Millisecond)
	a.Add(-time.Hour)
	b.Add(3 * time.Millisecond)
	a.Merge(&b)
	if a.Count() != 3 || a.Micros != 4000 || a.Buckets[0] != 1 {
		t.Errorf("after Add and Merge: %+v; want 3 durations, in all 4000 µs, one of them in bucket 0", a)
	}
}

func TestTheSumOfLongDurationsDoesNotOverflow(t *testing.T) {
	const tenures, day = 200_000, 24 * time.Hour // 548 years
	var d Durations
	for range tenures {
		d.Add(day)
	}
	if want := uint64(tenures * 24 * 3600 * 1_000_000); d.Micros != want {
		t.Errorf("Micros is %d, want %d", d.Micros, want)
	}
}
