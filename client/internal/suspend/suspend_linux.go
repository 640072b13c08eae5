package suspend

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

// longest is the largest result of measured so far, in nanoseconds.
var longest atomic.Int64

// measured returns the difference of the clocks that run and stand still while the machine is
// suspended. It may be less than the truth if this process is held up between reading them. The
// truth never falls, so measured returns the largest difference so far: a late reading does not
// make a lease seem longer.
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

// clock returns the nanoseconds of one of Linux' clocks.
func clock(id uintptr) (ns int64, ok bool) {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano(), errno == 0
}
