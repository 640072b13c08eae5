package proxy

import "time"

// MaxBetween is the largest result of Between: 100 years. Another program may have made a lease
// without end, and its remaining time would overflow a time.Duration.
const MaxBetween = 100 * 365 * 24 * time.Hour

// Between returns the time between two instants, both in Unix milliseconds. It is 0 if the second
// is not later, and MaxBetween at most.
func Between(from, to int64) time.Duration {
	if to <= from {
		return 0
	}
	apart := uint64(to) - uint64(from) // may overflow an int64
	return time.Duration(min(apart, uint64(MaxBetween.Milliseconds()))) * time.Millisecond
}
