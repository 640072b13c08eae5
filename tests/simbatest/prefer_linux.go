package simbatest

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Prefer gives the process a real-time priority, if the test has the permission (as root has). Use
// it in a test that measures how soon a process acts, since other tests may keep the machine busy.
// Do not use it for a process that computes for long.
//
// A nice value would not suffice: Linux compares nice values only within a session (autogroups),
// and other tests may run in other sessions. Servers get the second lowest real-time priority,
// other processes the lowest. With equal priorities, one would wait up to 100 ms for another.
func (p *Process) Prefer() { schedule(p.cmd.Process.Pid, unix.SCHED_RR, clients) }

// Background gives the process only the processor time that other processes do not use.
func (p *Process) Background() { schedule(p.cmd.Process.Pid, unix.SCHED_IDLE, 0) }

const clients, servers = 1, 2 // priorities

// PreferServer gives a server's process the priority of [Server.Prefer]. It is for a server that
// this package did not start. It reports whether the test has the permission.
func PreferServer(pid int) bool { return schedule(pid, unix.SCHED_RR, servers) }

// Prefer gives the process of the test the priority of [Process.Prefer], until the test ends.
// Processes that the test starts meanwhile inherit the priority.
func Prefer(t testing.TB) {
	schedule(os.Getpid(), unix.SCHED_RR, clients)
	t.Cleanup(func() { schedule(os.Getpid(), unix.SCHED_NORMAL, 0) })
}

// schedule sets the policy and the priority of all threads of a process. It reports whether the
// test has the permission.
func schedule(pid int, policy, priority uint32) bool {
	// On Linux, policy and priority belong to a thread, and a new thread inherits them. So schedule
	// is done when a pass over all threads finds none without them.
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
