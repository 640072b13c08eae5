package wrapper

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithThread makes the kernel kill the process when the thread that starts it ends.
func dieWithThread(sys *syscall.SysProcAttr) { sys.Pdeathsig = unix.SIGKILL }

// adoptOrphans makes processes below this one its children when their parents end. Otherwise init
// reaps them, and in a container there may be none: they would seem to run for ever.
func adoptOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // fails on no kernel that Go supports
}

// stopJob stops this program and its process group, as a shell expects when Ctrl-Z is typed. It
// returns when they are continued, or at once if the kernel ignores the signal: nobody could
// continue an orphaned process group.
func stopJob() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Kill(0, unix.SIGTSTP)
	// Another thread may take the first signal, later than this one goes on. This thread takes the
	// second before it returns.
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGTSTP)
}
