//go:build !linux

package simbatest

import "testing"

// Prefer does nothing where a process has no threads that can be told apart.
func (p *Process) Prefer() {}

// Background does nothing here either.
func (p *Process) Background() {}

// PreferServer does nothing here either.
func PreferServer(int) bool { return false }

// Prefer does nothing here either.
func Prefer(testing.TB) {}
