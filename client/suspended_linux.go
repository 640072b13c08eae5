package client

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Linux' numbers of its clocks.
const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// maxSuspended is the largest result of suspended so far, in nanoseconds.
var maxSuspended atomic.Int64

// suspended returns how long the machine was suspended since it booted. Go's monotonic clock
// stands still meanwhile, and the server's may not. The difference of the two clocks may be less
// than the truth if this process is held up between reading them. The truth never falls, so
// suspended returns the largest difference so far: a late reading does not make a lease seem
// longer.
func suspended() time.Duration {
	boot, ok1 := clock(clockBoottime)
	mono, ok2 := clock(clockMonotonic)
	if ok1 && ok2 {
		span := boot - mono
		for most := maxSuspended.Load(); span > most; most = maxSuspended.Load() {
			if maxSuspended.CompareAndSwap(most, span) {
				break
			}
		}
	}
	return time.Duration(maxSuspended.Load())
}

// clock returns the nanoseconds of one of Linux' clocks.
func clock(id uintptr) (ns int64, ok bool) {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano(), errno == 0
}
