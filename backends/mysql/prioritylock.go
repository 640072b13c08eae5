package mysql

import (
	"context"
	"slices"
	"sync"
)

// priorityLock is a lock of this process. Calls for the contender that owns the mutex get the lock
// before other calls do. Otherwise the order of the calls counts. The zero value is unlocked.
type priorityLock struct {
	mu     sync.Mutex // guards the fields below
	busy   bool
	owners []chan struct{} // one for each waiting call; closed when that call has the lock
	others []chan struct{}
}

// lock waits for the lock. It returns errBusy if the context ends first.
func (p *priorityLock) lock(ctx context.Context, owner bool) error {
	p.mu.Lock()
	if !p.busy {
		p.busy = true
		p.mu.Unlock()
		return nil
	}
	granted := make(chan struct{})
	if owner {
		p.owners = append(p.owners, granted)
	} else {
		p.others = append(p.others, granted)
	}
	p.mu.Unlock()
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	isOwn := func(waiter chan struct{}) bool { return waiter == granted }
	waiting := len(p.owners) + len(p.others)
	p.owners, p.others = slices.DeleteFunc(p.owners, isOwn), slices.DeleteFunc(p.others, isOwn)
	if len(p.owners)+len(p.others) == waiting {
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
	list := &p.owners
	if len(*list) == 0 {
		list = &p.others
	}
	if len(*list) == 0 {
		p.busy, p.owners, p.others = false, nil, nil
		return
	}
	close((*list)[0])
	*list = (*list)[1:]
}
