package persist

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp"
)

// MachineBoot returns the current boot of the machine. Its ID is the kernel's boot_id (random(4))
// and the offset of the process's time namespace (time_namespaces(7)). If they cannot be read, for
// example without /proc, the ID is empty. The clock is CLOCK_BOOTTIME (clock_gettime(2)).
func MachineBoot() Boot {
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, new(unix.Timespec)); err != nil {
		return unknownBoot(err)
	}
	id, err := bootID()
	return Boot{ID: id, Now: bootTime, Unknown: err}
}

// bootID names the boot and the offset of CLOCK_BOOTTIME. The boot_id alone does not identify the
// clock: containers with a shifted clock share it.
func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	offset, err := bootOffset()
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(id)) + " boottime " + offset, nil
}

// bootOffset returns by how much the time namespace shifts CLOCK_BOOTTIME, in the kernel's words:
// "1000000 0", in seconds and nanoseconds.
func bootOffset() (string, error) {
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if errors.Is(err, fs.ErrNotExist) {
		// A kernel without time namespaces has no such file, and no offset. But if /proc does not
		// show this process at all, the missing file proves nothing.
		if _, err := os.Stat("/proc/self/ns"); err != nil {
			return "", err
		}
		return "0 0", nil
	}
	if err != nil {
		return "", err
	}
	// The file is about the namespace of the process's children. The process may be in another one.
	own, err := os.Readlink("/proc/self/ns/time")
	if err != nil {
		return "", err
	}
	if children, err := os.Readlink("/proc/self/ns/time_for_children"); children != own {
		return "", fmt.Errorf("the process is in %s, its children are in %s (%v)", own, children, err)
	}
	return parseBootOffset(string(text))
}

func parseBootOffset(text string) (string, error) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "boottime" {
			return f[1] + " " + f[2], nil
		}
	}
	return "", fmt.Errorf("no offset of boottime in /proc/self/timens_offsets: %q", text)
}

// bootTime reads CLOCK_BOOTTIME. Go's monotonic clock stands still while the machine sleeps. If the
// stored instants missed that sleep, the next process would take leases for older than they are.
func bootTime() simba.Instant {
	var ts unix.Timespec
	// The call fails only if the clock does not exist. MachineBoot has checked that.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return simba.Instant(ts.Nano())
}
