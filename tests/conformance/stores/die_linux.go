package stores

import "syscall"

// DieWithParent makes the kernel kill a process when the thread that started it ends. The thread
// ends at the latest with the test's process.
func DieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
