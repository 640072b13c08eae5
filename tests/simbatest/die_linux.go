package simbatest

import "syscall"

// dieWithParent has the kernel kill the process when the test's process dies.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
