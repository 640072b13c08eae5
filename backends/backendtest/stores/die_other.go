//go:build !linux

package stores

import "syscall"

// DieWithParent does nothing on other systems: a killed test leaves its processes behind.
func DieWithParent() *syscall.SysProcAttr { return nil }
