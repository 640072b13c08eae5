//go:build race

package simbatest

import (
	"runtime"
	"sync"
	"testing"
)

// processors is the state before the first of the tests that run now.
var processors struct {
	mu     sync.Mutex // guards what follows
	tests  int
	before int
}

// limitProcessors makes the tests of this package run on one processor. With several, the race
// detector of Go 1.26 crashes when two goroutines of a bubble receive from due timers at once. It
// finds races on one processor as well.
func limitProcessors(t testing.TB) {
	p := &processors
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tests++; p.tests == 1 {
		p.before = runtime.GOMAXPROCS(1)
	}
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.tests--; p.tests == 0 {
			runtime.GOMAXPROCS(p.before)
		}
	})
}
