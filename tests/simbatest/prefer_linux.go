package simbatest

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Prefer lets the process run before others, if the test has that permission (as root). It is for a
// rule about how soon a process does something, on a machine that is busy with other things. A
// process that computes for long must not have it. A server runs before all other processes.
//
// Prefer sets one of the lowest two real-time priorities. Linux weighs nice values within a session
// only (autogroups), and other tests may run in another session. Servers have a priority of their
// own, since a process waits up to 100 ms for another of the same priority.
func (p *Process) Prefer() { schedule(p.cmd.Process.Pid, unix.SCHED_RR, clients) }

// Background gives the process only what others leave of the processors.
func (p *Process) Background() { schedule(p.cmd.Process.Pid, unix.SCHED_IDLE, 0) }

const clients, servers = 1, 2 // priorities

// PreferServer is [Server.Prefer] for a server that was started otherwise. It reports whether it
// had the permission.
func PreferServer(pid int) bool { return schedule(pid, unix.SCHED_RR, servers) }

// Prefer is [Process.Prefer] for the process of the test, until it ends. Processes that it starts
// meanwhile inherit the priority.
func Prefer(t testing.TB) {
	schedule(os.Getpid(), unix.SCHED_RR, clients)
	t.Cleanup(func() { schedule(os.Getpid(), unix.SCHED_NORMAL, 0) })
}

// schedule sets the policy and the priority of all threads of a process. It reports whether it had
// the permission.
func schedule(pid int, policy, priority uint32) bool {
	// On Linux both belong to a thread, and a new thread inherits them. So all threads have them
	// when a pass over the threads finds none without.
	tasks := fmt.Sprintf("/proc/%d/task", pid)
	done := make(map[int]bool)
	for more := true; more; {
		more = false
		threads, err := os.ReadDir(tasks)
		if err != nil {
			return true // the process is gone
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil || done[id] {
				continue
			}
			attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Priority: priority}
			if unix.SchedSetAttr(id, &attr, 0) == unix.EPERM {
				return false
			}
			done[id], more = true, true
		}
	}
	return true
}
