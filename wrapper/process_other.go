//go:build unix && !linux

package wrapper

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithThread does nothing: only Linux kills a process when the thread that started it ends.
func dieWithThread(*syscall.SysProcAttr) {}

// adoptOrphans does nothing: outside Linux, init reaps orphans.
func adoptOrphans() {}

// onlyZombies returns false: it cannot know.
func onlyZombies(int) bool { return false }

// stopJob stops this program and its process group. Another thread may take the signal a moment
// later, so stopJob sleeps.
func stopJob() {
	_ = unix.Kill(0, unix.SIGTSTP)
	time.Sleep(100 * time.Millisecond)
}
