package wrapper

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
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

// member is a process of a process group.
type member struct {
	pid    int
	name   string
	states string // one letter for each thread, as in proc_pid_stat(5)
}

// members returns the processes of a group. Without /proc it returns none. With the mount option
// hidepid, it does not see the processes of other users.
func members(group int) (all []member) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // fails for a bad pattern only
	for _, file := range files {
		name, fields := stat(file)
		const state, pgrp = 0, 2
		if len(fields) <= pgrp || fields[pgrp] != strconv.Itoa(group) {
			continue
		}
		m := member{name: name}
		m.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(file)))
		// A process whose first thread has ended has state Z, even while other threads run.
		threads, _ := filepath.Glob(filepath.Dir(file) + "/task/*/stat")
		for _, thread := range threads {
			if _, fields := stat(thread); fields != nil {
				m.states += fields[state]
			}
		}
		all = append(all, m)
	}
	return all
}

// stat returns the name in a file of proc_pid_stat(5), and the fields after it. If the process has
// ended, fields is nil.
func stat(file string) (name string, fields []string) {
	text, _ := os.ReadFile(file)
	// pid (name) state ppid pgrp … A name may have ')'.
	if begin, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')'); begin < end {
		return string(text[begin+1 : end]), strings.Fields(string(text[end+1:]))
	}
	return "", nil
}

// allIn reports whether all threads of the processes are in one of the states.
func allIn(states string, processes []member) bool {
	return !slices.ContainsFunc(processes, func(m member) bool { return strings.Trim(m.states, states) != "" })
}

// onlyZombies reports whether the process group has zombies and no other process.
func onlyZombies(group int) bool {
	all := members(group)
	return len(all) > 0 && allIn("ZX", all)
}

// stopPatience is the time that processes have for their own reaction to SIGTSTP before SIGSTOP.
const stopPatience = time.Second

// stopped reports whether no process of the group runs.
func stopped(group int) bool { return allIn("TtZX", members(group)) }

// stopSelf stops this process as the default action of SIGTSTP does. It returns when the process
// continues. The kernel does not stop a process of an orphaned process group, since nobody could
// continue it. Then stopSelf returns at once.
//
// The kernel may give a signal to any thread of a process, and this thread might run on meanwhile.
// So stopSelf sends the signal to this thread, which stops before Tgkill returns.
func stopSelf() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	caught := swapAction(unix.SIGTSTP, &action{})
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGTSTP)
	swapAction(unix.SIGTSTP, &caught)
}

// withoutSIGTTOU calls f with SIGTTOU blocked in this thread.
func withoutSIGTTOU(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var blocked, old unix.Sigset_t
	blocked.Val[0] = 1 << (unix.SIGTTOU - 1)
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, &old) // fails for a bad argument only
	f()
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
}

// action is what the kernel does with a signal: its struct sigaction. The first field is the
// handler, 0 for the default action, or 1 to ignore the signal.
type action [4]uintptr

// swapAction sets what the kernel does with a signal, unless new is nil. It returns the old action.
// Package signal cannot tell whether SIGTSTP, SIGTTIN and SIGTTOU are ignored, and cannot restore
// their default actions.
func swapAction(sig unix.Signal, new *action) (old action) {
	const maskSize = 8 // bytes
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(new)), uintptr(unsafe.Pointer(&old)), maskSize, 0, 0)
	return old
}

func ignored(sig unix.Signal) bool { return swapAction(sig, nil)[0] == 1 }

func setDefault(sig unix.Signal) { swapAction(sig, &action{}) }
