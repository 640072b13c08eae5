package redis

import (
	"context"
	"sync"
)

// tasks are the goroutines of a backend. None starts after stop, which waits for all.
// Safe for concurrent use.
type tasks struct {
	ctx    context.Context // ends with stop
	cancel context.CancelFunc

	mu      sync.Mutex // guards stopped, and wg.Add against wg.Wait
	stopped bool
	wg      sync.WaitGroup
}

func newTasks() *tasks {
	t := &tasks{}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// start runs f in a goroutine, and reports false if it is too late for that.
func (t *tasks) start(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return false
	}
	t.wg.Add(1)
	go func() {
		defer t.wg.Done()
		f()
	}()
	return true
}

// stop ends ctx and lets nothing start any more. It reports whether it was the first.
func (t *tasks) stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := !t.stopped
	t.stopped = true
	t.cancel()
	return first
}
