package client

import (
	"sync"
	"time"

	"github.com/simba-resp/simba-resp/client/internal/suspend"
)

// suspendCheckEvery is how often suspendWatch checks whether the machine was suspended.
const suspendCheckEvery = 200 * time.Millisecond

// suspendWatch ends ownerships whose leases ended while the machine was suspended. A timer of Go
// stops during a suspension, but the lease does not. suspendWatch checks only while there are
// ownerships. The zero value is ready to use. Safe for concurrent use.
type suspendWatch struct {
	mu        sync.Mutex // guards what follows
	owned     map[*ownership]struct{}
	timer     *time.Timer   // nil = nothing is owned
	suspended time.Duration // suspend.Time at the last check
}

func (w *suspendWatch) add(o *ownership) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.owned) == 0 {
		w.owned, w.suspended = make(map[*ownership]struct{}), suspend.Time()
		w.timer = time.AfterFunc(suspendCheckEvery, w.check)
	}
	w.owned[o] = struct{}{}
}

func (w *suspendWatch) remove(o *ownership) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.owned, o)
	if len(w.owned) == 0 && w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

func (w *suspendWatch) check() {
	var list []*ownership
	w.mu.Lock()
	if w.timer != nil {
		w.timer.Reset(suspendCheckEvery)
	}
	if s := suspend.Time(); s != w.suspended {
		w.suspended = s
		for o := range w.owned {
			list = append(list, o)
		}
	}
	w.mu.Unlock()
	for _, o := range list {
		o.expire() // calls remove if the lease has ended
	}
}
