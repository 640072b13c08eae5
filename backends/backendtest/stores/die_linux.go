package stores

import "syscall"

// DieWithParent has the kernel kill a process when the thread ends that started it, with the test's process
// at the latest.
func DieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
