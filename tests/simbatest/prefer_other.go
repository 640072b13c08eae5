//go:build !linux

package simbatest

import "testing"

// Prefer does nothing where a process has no threads that can be told apart.
func (p *Process) Prefer() {}

func (p *Process) preferServer() {}

// Prefer does nothing here either.
func Prefer(testing.TB) {}
