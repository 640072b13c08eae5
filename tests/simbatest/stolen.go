package simbatest

import "time"

// Since returns how much of the time since an earlier reading the host took from one processor, at most:
// for so long no program on it could do anything, however it is scheduled.
func (s Stolen) Since(earlier Stolen) (most time.Duration) {
	for i := range min(len(s), len(earlier)) {
		most = max(most, s[i]-earlier[i])
	}
	return most
}
