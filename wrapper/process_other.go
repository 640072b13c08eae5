//go:build unix && !linux

package wrapper

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithThread does nothing: only Linux has it.
func dieWithThread(*syscall.SysProcAttr) {}

// adoptOrphans does nothing: only Linux can do it. init reaps orphans.
func adoptOrphans() {}

// onlyZombies reports that it does not know.
func onlyZombies(int) bool { return false }

// stopJob is like that of Linux. It sleeps, because another thread may take the signal a moment
// later.
func stopJob() {
	_ = unix.Kill(0, unix.SIGTSTP)
	time.Sleep(100 * time.Millisecond)
}
