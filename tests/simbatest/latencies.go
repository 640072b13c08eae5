package simbatest

import (
	"fmt"
	"slices"
	"time"
)

// Latencies are the durations of a repeated action.
type Latencies []time.Duration

// Quantile returns the smallest duration d such that at least the fraction q of all durations is at
// most d. q is 0.999 for p99.9, and 1 for the longest. Without durations Quantile returns 0.
func (l Latencies) Quantile(q float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l))
	i := int(q*float64(len(l))+0.999999) - 1
	return sorted[min(max(i, 0), len(l)-1)]
}

func (l Latencies) String() string {
	return fmt.Sprintf("p50 %v, p99 %v, p99.9 %v, max %v", l.rounded(0.5), l.rounded(0.99), l.rounded(0.999), l.Longest())
}

// Longest returns the longest duration, rounded to 0.1 ms.
func (l Latencies) Longest() time.Duration { return l.rounded(1) }

func (l Latencies) rounded(q float64) time.Duration {
	return l.Quantile(q).Round(100 * time.Microsecond)
}

// Since returns how much time the host took since an earlier reading, from the virtual processor
// that lost most.
func (s Stolen) Since(earlier Stolen) (most time.Duration) {
	for i := range min(len(s), len(earlier)) {
		most = max(most, s[i]-earlier[i])
	}
	return most
}
