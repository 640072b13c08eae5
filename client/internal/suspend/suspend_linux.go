package suspend

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// The numbers of two clocks of Linux.
const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// longest is the largest result of measured so far, in nanoseconds.
var longest atomic.Int64

// measured returns how long the machine was suspended. It is the difference between the boot clock,
// which runs during a suspension, and the monotonic clock, which does not.
//
// If the process is delayed between the two readings, the difference is too small. The true value
// never falls, so measured returns the largest difference so far.
func measured() time.Duration {
	boot, ok1 := clock(clockBoottime)
	mono, ok2 := clock(clockMonotonic)
	if ok1 && ok2 {
		span := boot - mono
		for most := longest.Load(); span > most; most = longest.Load() {
			if longest.CompareAndSwap(most, span) {
				break
			}
		}
	}
	return time.Duration(longest.Load())
}

// clock returns the time of a clock of Linux in nanoseconds.
func clock(id uintptr) (ns int64, ok bool) {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano(), errno == 0
}
