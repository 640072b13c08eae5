package redis

import (
	"context"
	"sync"
	"time"
)

// tasks are the goroutines of a backend. None starts after stop. Safe for concurrent use.
type tasks struct {
	ctx    context.Context // stop cancels it
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

// start runs f in a goroutine. After stop it returns false and does not run f.
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

// stop cancels ctx. It reports whether this is the first call. The caller waits for the goroutines
// by wg.
func (t *tasks) stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := !t.stopped
	t.stopped = true
	t.cancel()
	return first
}

// pause waits for a time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
