//go:build !linux

package simbatest

// Prefer does nothing where a process has no threads that can be told apart.
func (p *Process) Prefer() {}
