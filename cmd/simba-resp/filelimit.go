package main

import (
	"math"
	"syscall"
)

// reservedFiles is the number of open files that stay free for the store, its log and the listener.
// If the store cannot open its next file, the process ends.
const reservedFiles = 128

// clientLimit returns how many clients the limit of open files allows. Go raises the soft limit to
// the hard one before main.
func clientLimit() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return math.MaxInt32 // when the limit is reached, accept fails
	}
	return max(1, int(min(files.Cur, math.MaxInt32))-reservedFiles)
}
