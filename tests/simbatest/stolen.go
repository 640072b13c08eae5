package simbatest

import "time"

// Since returns the most that the host took from one processor since an earlier reading. For that
// long, a program on that processor could not run at all.
func (s Stolen) Since(earlier Stolen) (most time.Duration) {
	for i := range min(len(s), len(earlier)) {
		most = max(most, s[i]-earlier[i])
	}
	return most
}
