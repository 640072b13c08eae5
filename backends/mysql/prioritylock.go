package mysql

import (
	"context"
	"slices"
	"sync"
)

// gate is for one at a time. The owner's requests go before all others that wait; apart
// from that, the order is that in which they come. The zero gate is open.
type priorityLock struct {
	mu     sync.Mutex // guards what follows
	busy   bool
	owners []chan struct{} // who waits; closed when it is its turn
	others []chan struct{}
}

// enter waits for its turn. It fails with errBusy when the context ends first.
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
	is := func(waiter chan struct{}) bool { return waiter == granted }
	waiting := len(p.owners) + len(p.others)
	p.owners, p.others = slices.DeleteFunc(p.owners, is), slices.DeleteFunc(p.others, is)
	if len(p.owners)+len(p.others) == waiting {
		p.nextLocked() // its turn came just now
	}
	return errBusy
}

func (p *priorityLock) unlock() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nextLocked()
}

// nextLocked gives the turn to the next that waits.
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
