package wrapper

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dieWithThread makes the kernel kill the process when the thread that starts it ends.
func dieWithThread(sys *syscall.SysProcAttr) { sys.Pdeathsig = unix.SIGKILL }

// adoptOrphans makes this process the parent of descendants whose parents have ended, so that it
// can reap them. Otherwise they become children of init, and the init of a container may reap none.
func adoptOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // fails on no kernel that Go supports
}

// onlyZombies reports whether the process group has zombies and no other process. Without /proc it
// returns false. With the mount option hidepid, it does not see the processes of other users.
func onlyZombies(group int) bool {
	found := false
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // fails for a bad pattern only
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		// proc_pid_stat(5): pid (name) state ppid pgrp … A name may have ')'.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		const state, pgrp, threads = 0, 2, 17
		if len(fields) <= threads || fields[pgrp] != strconv.Itoa(group) {
			continue
		}
		// A process whose first thread has ended has state Z, even while other threads run.
		if fields[state] != "Z" && fields[state] != "X" || fields[threads] != "1" {
			return false
		}
		found = true
	}
	return found
}

// stopJob stops this program and its process group, as a shell expects when the user types Ctrl-Z.
// It returns when the shell continues them. The kernel does not stop an orphaned process group,
// since nobody could continue it. Then stopJob returns at once.
//
// The kernel may give a signal to any thread of a process, and this thread might run on meanwhile.
// So this process ignores the signal to its group. Then it sends the signal to this thread, which
// stops before Tgkill returns.
func stopJob() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	setAction(unix.SIGTSTP, actionIgnore)
	_ = unix.Kill(0, unix.SIGTSTP)
	setAction(unix.SIGTSTP, actionDefault)
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGTSTP)
}

// What the kernel does with a signal.
const (
	actionDefault uintptr = 0
	actionIgnore  uintptr = 1
)

// setAction sets what the kernel does with a signal. It is for signals that package signal does not
// catch. After signal.Ignore, that package could not restore the default action of SIGTSTP.
func setAction(sig unix.Signal, action uintptr) {
	const maskSize = 8 // bytes
	new := struct {
		action, flags, restorer uintptr
		mask                    [maskSize]byte
	}{action: action}
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&new)), 0, maskSize, 0, 0)
}
