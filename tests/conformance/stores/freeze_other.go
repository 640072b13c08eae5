//go:build !linux

package stores

import (
	"os"
	"syscall"
)

// Freeze stops a process with SIGSTOP. On systems other than Linux it may still send an answer.
func Freeze(p *os.Process) { _ = p.Signal(syscall.SIGSTOP) } // fails if the process is gone
