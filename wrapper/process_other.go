//go:build unix && !linux

package wrapper

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithThread does nothing: only Linux kills a process when the thread that started it ends.
func dieWithThread(*syscall.SysProcAttr) {}

// adoptOrphans does nothing: outside Linux, init reaps orphans.
func adoptOrphans() {}

// member is a process of a process group.
type member struct {
	pid  int
	name string
}

// members returns nil: it cannot know.
func members(int) []member { return nil }

// onlyZombies returns false: it cannot know.
func onlyZombies(int) bool { return false }

// stopPatience is 0, because stopped cannot tell whether SIGTSTP was enough.
const stopPatience = 0

// stopped returns true: it cannot know.
func stopped(int) bool { return true }

// stopSelf stops this process. Another thread may take the signal a moment later, so stopSelf
// sleeps.
func stopSelf() {
	_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	time.Sleep(100 * time.Millisecond)
}

// withoutSIGTTOU calls f with SIGTTOU ignored.
func withoutSIGTTOU(f func()) {
	signal.Ignore(unix.SIGTTOU)
	f()
	signal.Notify(stops, unix.SIGTTOU)
}

// ignored returns false: it cannot know.
func ignored(unix.Signal) bool { return false }

// setDefault does nothing: the signal stays ignored.
func setDefault(unix.Signal) {}
