package proxy

import "time"

// MaxRemaining is what Remaining returns at most: 100 years. A lease without end, which another program may have
// made, has more left than a time.Duration holds.
const MaxRemaining = 100 * 365 * 24 * time.Hour

// Remaining is how long it is from now until the end, both in Unix milliseconds; 0 if that is over.
func Remaining(now, end int64) time.Duration {
	if end <= now {
		return 0
	}
	apart := uint64(end) - uint64(now) // which may be more than an int64 holds
	return time.Duration(min(apart, uint64(MaxRemaining.Milliseconds()))) * time.Millisecond
}
