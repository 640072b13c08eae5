//go:build !linux

package stores

import (
	"os"
	"syscall"
)

// Freeze stops a process (SIGSTOP). Elsewhere than on Linux it may answer once more.
func Freeze(p *os.Process) { _ = p.Signal(syscall.SIGSTOP) } // fails if it is gone
