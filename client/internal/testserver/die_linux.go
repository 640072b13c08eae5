package testserver

import "syscall"

// dieWithParent lets the kernel kill a process when the thread that started it ends, at the latest
// with the test's process.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
