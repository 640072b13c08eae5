package simbatest

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// preference is the nice value of processes that are preferred.
const preference = -10

// Prefer lets the process run before others that want the same processor, if the test may do so (as
// root): for a rule about how soon a process does something, not about how busy the machine is.
// It is kept in order by the same scheduler as everything else, and may be late still.
func (p *Process) Prefer() {
	// A nice value is a thread's, whatever POSIX says; new threads have that of the thread which made
	// them. So all have it when a look finds none that has not.
	tasks := fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid)
	preferred := make(map[int]bool)
	for more := true; more; {
		more = false
		threads, err := os.ReadDir(tasks)
		if err != nil {
			return // the process is gone
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil || preferred[id] {
				continue
			}
			if syscall.Setpriority(syscall.PRIO_PROCESS, id, preference) == syscall.EACCES {
				return
			}
			preferred[id], more = true, true
		}
	}
}
