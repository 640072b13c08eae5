package testserver

import "syscall"

// dieWithParent returns attributes of a process. With them the kernel kills the process when the
// thread that started it ends, so at the latest when the test's process ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
