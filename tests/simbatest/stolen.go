package simbatest

import "time"

// Since returns the most time that the host took from a single processor since an earlier reading.
// A program on that processor could not run for this time.
func (s Stolen) Since(earlier Stolen) (most time.Duration) {
	for i := range min(len(s), len(earlier)) {
		most = max(most, s[i]-earlier[i])
	}
	return most
}
