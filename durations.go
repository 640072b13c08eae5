package simba

import (
	"math/bits"
	"time"
)

// DurationBuckets is the number of buckets of Durations. The last bucket has no end; the one before
// ends at 2^38 microseconds, about three days.
const DurationBuckets = 40

// Durations counts durations by length. It is not safe for concurrent use.
type Durations struct {
	// Buckets counts by length. Bucket i counts durations of more than 2^(i-1) and at most 2^i
	// microseconds. The last bucket counts all that are longer.
	Buckets [DurationBuckets]uint64
	// Micros is the sum in microseconds. A time.Duration could overflow: the waits of 10,000
	// waiters would reach its limit within eleven days.
	Micros uint64
}

// DurationBucket returns the bucket that counts d.
func DurationBucket(d time.Duration) int {
	if d <= time.Microsecond {
		return 0
	}
	micros := uint64((d-1)/time.Microsecond + 1)
	return min(bits.Len64(micros-1), DurationBuckets-1)
}

// Add counts a duration. A negative duration counts as 0.
func (d *Durations) Add(took time.Duration) {
	took = max(took, 0)
	d.Buckets[DurationBucket(took)]++
	d.Micros += uint64(took.Round(time.Microsecond) / time.Microsecond)
}

// Merge adds the counts of o.
func (d *Durations) Merge(o *Durations) {
	for i, n := range o.Buckets {
		d.Buckets[i] += n
	}
	d.Micros += o.Micros
}

// Count returns how many durations were counted.
func (d *Durations) Count() (n uint64) {
	for _, m := range d.Buckets {
		n += m
	}
	return n
}
