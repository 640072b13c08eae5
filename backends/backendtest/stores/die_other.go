//go:build !linux

package stores

import "syscall"

// DieWithParent can ask only Linux for it: elsewhere a test that is killed leaves
// its processes behind.
func DieWithParent() *syscall.SysProcAttr { return nil }
