package simbatest

import "time"

// Since returns the time that the host took from one virtual processor since an earlier reading. Of
// all processors it takes the one that lost most.
func (s Stolen) Since(earlier Stolen) (most time.Duration) {
	for i := range min(len(s), len(earlier)) {
		most = max(most, s[i]-earlier[i])
	}
	return most
}
