package mysql

import (
	"context"
	"slices"
	"sync"
)

// gate is for one at a time. The owner's requests go before all others that wait; apart
// from that, the order is that in which they come. The zero gate is open.
type gate struct {
	mu     sync.Mutex // guards what follows
	busy   bool
	owners []chan struct{} // who waits; closed when it is its turn
	others []chan struct{}
}

// enter waits for its turn. It fails with errBusy when the context ends first.
func (g *gate) enter(ctx context.Context, owner bool) error {
	g.mu.Lock()
	if !g.busy {
		g.busy = true
		g.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	if owner {
		g.owners = append(g.owners, turn)
	} else {
		g.others = append(g.others, turn)
	}
	g.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	is := func(waiter chan struct{}) bool { return waiter == turn }
	waiting := len(g.owners) + len(g.others)
	g.owners, g.others = slices.DeleteFunc(g.owners, is), slices.DeleteFunc(g.others, is)
	if len(g.owners)+len(g.others) == waiting {
		g.nextLocked() // its turn came just now
	}
	return errBusy
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nextLocked()
}

// nextLocked gives the turn to the next that waits.
func (g *gate) nextLocked() {
	list := &g.owners
	if len(*list) == 0 {
		list = &g.others
	}
	if len(*list) == 0 {
		g.busy, g.owners, g.others = false, nil, nil
		return
	}
	close((*list)[0])
	*list = (*list)[1:]
}
