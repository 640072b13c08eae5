package persist

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp"
)

// MachineBoot returns the boot that the machine is in: the kernel's boot_id
// (random(4)) and CLOCK_BOOTTIME (clock_gettime(2)).
func MachineBoot() (Boot, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Boot{}, fmt.Errorf("read the boot id: %w", err)
	}
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, new(unix.Timespec)); err != nil {
		return Boot{}, fmt.Errorf("read CLOCK_BOOTTIME: %w", err)
	}
	return Boot{ID: strings.TrimSpace(string(id)), Now: bootTime}, nil
}

// bootTime reads CLOCK_BOOTTIME itself, rather than going on from one reading by
// Go's monotonic clock: that one stands still while the machine sleeps, and the
// process after this one would find the stored instants too old.
func bootTime() simba.Instant {
	var ts unix.Timespec
	// It fails only for a clock that does not exist, and MachineBoot has seen it.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return simba.Instant(ts.Nano())
}
