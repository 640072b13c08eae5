//go:build !linux

package testserver

import "syscall"

// dieWithParent does nothing on other systems: a killed test leaves its server behind.
func dieWithParent() *syscall.SysProcAttr { return nil }
