//go:build !linux

package simbatest

import "testing"

// Prefer does nothing on this system.
func (p *Process) Prefer() {}

// Background does nothing on this system.
func (p *Process) Background() {}

// PreferServer does nothing on this system.
func PreferServer(int) bool { return false }

// Prefer does nothing on this system.
func Prefer(testing.TB) {}
