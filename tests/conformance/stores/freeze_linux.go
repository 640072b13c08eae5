package stores

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Freeze stops a child process with SIGSTOP. It returns when the process has stopped or is gone.
// Until then, threads on other processors might still send an answer.
func Freeze(p *os.Process) {
	if p.Signal(syscall.SIGSTOP) != nil {
		return // it is gone
	}
	for unix.Waitid(unix.P_PID, p.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}
