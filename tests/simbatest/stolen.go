package simbatest

import "time"

// Since returns how much time the host took since an earlier reading, from the virtual processor
// that lost most.
func (s Stolen) Since(earlier Stolen) (most time.Duration) {
	for i := range min(len(s), len(earlier)) {
		most = max(most, s[i]-earlier[i])
	}
	return most
}
