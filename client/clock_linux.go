package client

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// longest is the most that suspended has seen, in nanoseconds.
var longest atomic.Int64

// suspended is how long the machine has slept since it booted. Go's monotonic clock stands
// still meanwhile, and the server's may not. What is read is never more than the truth,
// but less if this process is held up between the two clocks. The truth never falls: so
// the most that was ever read holds, and a lease does not seem longer because of a late reading.
func suspended() time.Duration {
	var boot, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) == nil && unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) == nil {
		slept := boot.Nano() - mono.Nano()
		for most := longest.Load(); slept > most; most = longest.Load() {
			if longest.CompareAndSwap(most, slept) {
				break
			}
		}
	}
	return time.Duration(longest.Load())
}
