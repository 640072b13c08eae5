package simbatest

import (
	"fmt"
	"slices"
	"time"
)

// Latencies are the durations of something that was repeated.
type Latencies []time.Duration

// Quantile returns the shortest duration that at least the fraction q of all did not exceed: 0.999
// for p99.9, 1 for the longest. Without durations it is 0.
func (l Latencies) Quantile(q float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l))
	i := int(q*float64(len(l))+0.999999) - 1
	return sorted[min(max(i, 0), len(l)-1)]
}

// String has p50, p99, p99.9 and the longest.
func (l Latencies) String() string {
	round := func(q float64) time.Duration { return l.Quantile(q).Round(100 * time.Microsecond) }
	return fmt.Sprintf("p50 %v, p99 %v, p99.9 %v, max %v", round(0.5), round(0.99), round(0.999), round(1))
}
