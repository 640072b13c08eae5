package commands

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// tally counts the calls of one command. All connections add to it without locks.
type tally struct {
	// buckets counts calls by their duration: bucket i those of up to 2^i
	// microseconds that are longer than bucket i-1's. Their sum is the number of
	// calls, so that the histogram costs nothing extra.
	buckets  [durationBuckets]atomic.Uint64
	nanos    atomic.Int64
	rejected atomic.Uint64 // refused before it ran: arity, NOAUTH, ...
	failed   atomic.Uint64 // ran and replied with an error
}

// durationBuckets reach up to 2^24 microseconds, 17 s; the last takes the rest.
const durationBuckets = 26

func (t *tally) add(took time.Duration, failed bool) {
	t.buckets[bucketOf(took)].Add(1)
	t.nanos.Add(int64(took))
	if failed {
		t.failed.Add(1)
	}
}

func bucketOf(took time.Duration) int {
	if took <= time.Microsecond {
		return 0
	}
	micros := uint64((took + time.Microsecond - 1) / time.Microsecond)
	return min(bits.Len64(micros-1), durationBuckets-1)
}

func (t *tally) calls() (n uint64) {
	for i := range t.buckets {
		n += t.buckets[i].Load()
	}
	return n
}

func (t *tally) reset() {
	for i := range t.buckets {
		t.buckets[i].Store(0)
	}
	t.nanos.Store(0)
	t.rejected.Store(0)
	t.failed.Store(0)
}
