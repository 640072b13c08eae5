package testserver

import "syscall"

// dieWithParent returns attributes that make the kernel kill a process when the thread that started
// it ends. That happens at the latest when the test's process ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
