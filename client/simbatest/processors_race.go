//go:build race

package simbatest

import (
	"runtime"
	"sync"
	"testing"
)

// processors counts the tests for which GOMAXPROCS is 1.
var processors struct {
	mu     sync.Mutex // guards what follows
	tests  int        // how many of these tests run now
	before int        // GOMAXPROCS before the first of them
}

// limitProcessors sets GOMAXPROCS to 1 until the test ends. With several processors, the race
// detector of Go 1.26 crashes when two goroutines of a synctest bubble receive from due timers at
// once. On one processor it still finds races.
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
