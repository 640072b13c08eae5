//go:build !linux

package simbatest

import "syscall"

// dieWithParent can ask only Linux for it: elsewhere a test that is killed leaves
// its processes behind.
func dieWithParent() *syscall.SysProcAttr { return nil }
