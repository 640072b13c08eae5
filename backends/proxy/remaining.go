package proxy

import "time"

// MaxRemaining is the largest result of Remaining: 100 years. Another program may have made a lease
// without end. A time.Duration cannot hold what remains of it.
const MaxRemaining = 100 * 365 * 24 * time.Hour

// Remaining returns the time from now until end, both in Unix milliseconds; 0 if end has passed.
func Remaining(now, end int64) time.Duration {
	if end <= now {
		return 0
	}
	apart := uint64(end) - uint64(now) // may be more than an int64 holds
	return time.Duration(min(apart, uint64(MaxRemaining.Milliseconds()))) * time.Millisecond
}
