//go:build !linux

package stores

import "syscall"

// DieWithParent does nothing on systems other than Linux. A killed test leaves its stores running.
func DieWithParent() *syscall.SysProcAttr { return nil }
