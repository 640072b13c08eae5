//go:build !linux

package testserver

import "syscall"

// dieWithParent returns no attributes on this system. So a killed test leaves its server running.
func dieWithParent() *syscall.SysProcAttr { return nil }
