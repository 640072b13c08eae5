//go:build unix && !linux

package wrapper

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithThread does nothing: only Linux has it.
func dieWithThread(*syscall.SysProcAttr) {}

// adoptOrphans does nothing: only Linux has it. init reaps them.
func adoptOrphans() {}

// onlyZombies reports that it does not know.
func onlyZombies(int) bool { return false }

// stopJob is that of Linux, except that any thread may take the signal: it waits for that.
func stopJob() {
	_ = unix.Kill(0, unix.SIGTSTP)
	time.Sleep(100 * time.Millisecond)
}
