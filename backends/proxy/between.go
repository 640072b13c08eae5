package proxy

import "time"

// MaxBetween is the largest result of Between: 100 years. Another program may have made a lease
// without end. A time.Duration cannot hold what remains of it.
const MaxBetween = 100 * 365 * 24 * time.Hour

// Between returns the time between two instants, both in Unix milliseconds. It is 0 if the second
// is not later, and MaxBetween at most.
func Between(from, to int64) time.Duration {
	if to <= from {
		return 0
	}
	apart := uint64(to) - uint64(from) // may be more than an int64 holds
	return time.Duration(min(apart, uint64(MaxBetween.Milliseconds()))) * time.Millisecond
}
