package simbatest

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Prefer lets the process run before others that want the same processor, if the test may do so (as
// root): for a rule about how soon a process does something, not about how busy the machine is with
// other things. One that computes for long must not have it. A server has it before all other processes.
//
// A nice value below 0 would do if Linux did not weigh it within a session only (autogroups), and
// other tests may run in another: so it is one of the lowest two priorities of real time. They are two since
// one waits for another of the same priority for up to 100 ms.
func (p *Process) Prefer() { schedule(p.cmd.Process.Pid, unix.SCHED_RR, clients) }

// Background lets the process have only what others leave of the processors.
func (p *Process) Background() { schedule(p.cmd.Process.Pid, unix.SCHED_IDLE, 0) }

const clients, servers = 1, 2 // priorities

// PreferServer is [Server.Prefer] for a server that was started otherwise. It reports whether that is permitted.
func PreferServer(pid int) bool { return schedule(pid, unix.SCHED_RR, servers) }

// Prefer is [Process.Prefer] for the process of the test, until it ends. What it starts meanwhile
// has it too.
func Prefer(t testing.TB) {
	schedule(os.Getpid(), unix.SCHED_RR, clients)
	t.Cleanup(func() { schedule(os.Getpid(), unix.SCHED_NORMAL, 0) })
}

// schedule sets policy and priority of a process' threads, and reports whether it is permitted to.
func schedule(pid int, policy, priority uint32) bool {
	// They are a thread's, whatever POSIX says; new threads have those of the thread which made
	// them. So all have them when a look finds none that has not.
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
