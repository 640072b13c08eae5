//go:build !linux

package stores

import "syscall"

// dieWithParent can ask only Linux for it: elsewhere a test that is killed leaves
// its stores behind.
func dieWithParent() *syscall.SysProcAttr { return nil }
