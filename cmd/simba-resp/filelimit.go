package main

import (
	"math"
	"syscall"
)

// reservedFiles is the number of open files that stay free for the store, its log and the listener.
// If the store cannot open its next file, the process ends.
const reservedFiles = 128

// clientLimit returns how many clients the limit of open files allows. A member of a cluster needs a
// second file for each client that it passes on, and may have as many clients of Sentinel. Go raises the
// soft limit to the hard one before main.
func (c *config) clientLimit() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return math.MaxInt32 // when the limit is reached, accept fails
	}
	most := int(min(files.Cur, math.MaxInt32)) - reservedFiles
	switch {
	case c.ClusterSentinelAddr != "":
		most /= 3
	case c.Cluster != "":
		most /= 2
	}
	return max(1, most)
}
