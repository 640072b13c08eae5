package stores

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Freeze stops a process that the caller's has started (SIGSTOP), and returns when it stands still, or is gone:
// the signal alone leaves its threads on other processors time to answer once more.
func Freeze(p *os.Process) {
	if p.Signal(syscall.SIGSTOP) != nil {
		return // it is gone
	}
	for unix.Waitid(unix.P_PID, p.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}
