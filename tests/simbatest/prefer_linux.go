package simbatest

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Prefer gives the process a real-time priority, if the test has the permission (root has it). Use
// it if the test measures how soon a process acts, but not for a process that computes for long.
//
// A nice value would not suffice: Linux compares nice values only within a session (autogroups).
func (p *Process) Prefer() { schedule(p.cmd.Process.Pid, unix.SCHED_RR, clients) }

// Background gives the process only the processor time that no other process wants.
func (p *Process) Background() { schedule(p.cmd.Process.Pid, unix.SCHED_IDLE, 0) }

// Real-time priorities; 1 is the lowest. Servers have a higher one than other processes. With equal
// priorities, one process would wait up to 100 ms for another.
const clients, servers = 1, 2

// PreferServer gives a server's process the priority of [Server.Prefer], although this package did
// not start the server. It returns false if the test lacks the permission.
func PreferServer(pid int) bool { return schedule(pid, unix.SCHED_RR, servers) }

// Prefer gives the process of the test the priority of [Process.Prefer] until the test ends.
// Processes that the test starts meanwhile inherit the priority.
func Prefer(t testing.TB) {
	schedule(os.Getpid(), unix.SCHED_RR, clients)
	t.Cleanup(func() { schedule(os.Getpid(), unix.SCHED_NORMAL, 0) })
}

// schedule sets the policy and the priority of all threads of a process. It returns false if the
// test lacks the permission.
func schedule(pid int, policy, priority uint32) bool {
	// Each thread has a policy and a priority, and a new thread inherits those of its creator. So
	// schedule lists the threads until a list has no new one.
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
