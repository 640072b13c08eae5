package main

import (
	"math"
	"syscall"
)

// reservedFiles are the open files that clients must leave to the store, its log
// and the listener: a store that cannot open its next file ends the process.
const reservedFiles = 128

// clientLimit is how many clients the process can serve with the files that it may
// open. Go has raised the soft limit to the hard one before main.
func clientLimit() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return math.MaxInt32 // then connections that are refused will tell
	}
	return max(1, int(min(files.Cur, math.MaxInt32))-reservedFiles)
}
