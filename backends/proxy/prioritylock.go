package proxy

import (
	"context"
	"slices"
	"sync"
)

// priorityLock is a lock of this process. Calls for the contender that owns the mutex get the lock
// before other calls do. Otherwise the order of the calls counts. The zero value is unlocked.
type priorityLock struct {
	mu      sync.Mutex // guards the fields below
	busy    bool
	waiting []chan struct{} // one for each waiting call; closed when that call has the lock
	owners  int             // how many of them, the first ones, are for the owner
}

// lock waits for the lock. It returns errBusy if the context ends first.
func (p *priorityLock) lock(ctx context.Context, owner bool) error {
	p.mu.Lock()
	if !p.busy {
		p.busy = true
		p.mu.Unlock()
		return nil
	}
	locked := make(chan struct{})
	if owner {
		p.waiting = slices.Insert(p.waiting, p.owners, locked)
		p.owners++
	} else {
		p.waiting = append(p.waiting, locked)
	}
	p.mu.Unlock()
	select {
	case <-locked:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, locked); i >= 0 {
		p.removeLocked(i)
	} else {
		p.nextLocked() // this call got the lock after ctx ended
	}
	return errBusy
}

func (p *priorityLock) unlock() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nextLocked()
}

// nextLocked gives the lock to the next waiting call. The caller holds p.mu.
func (p *priorityLock) nextLocked() {
	if p.busy = len(p.waiting) > 0; p.busy {
		close(p.waiting[0])
		p.removeLocked(0)
	}
}

func (p *priorityLock) removeLocked(i int) {
	p.waiting = slices.Delete(p.waiting, i, i+1)
	if i < p.owners {
		p.owners--
	}
}
