package client

import (
	"sync"
	"time"
)

// lookForSleep is between two looks whether the machine has slept.
const lookForSleep = 200 * time.Millisecond

// vigil ends ownerships whose leases were over while the machine slept: Go's timers stand still
// meanwhile, and the lease does not. It looks only as long as there are ownerships. The zero value
// is ready to use. Safe for concurrent use.
type vigil struct {
	mu    sync.Mutex // guards what follows
	owned map[*ownership]struct{}
	timer *time.Timer   // nil = nothing is owned
	slept time.Duration // as seen last
}

func (v *vigil) add(o *ownership) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.owned) == 0 {
		v.owned, v.slept = make(map[*ownership]struct{}), suspended()
		v.timer = time.AfterFunc(lookForSleep, v.look)
	}
	v.owned[o] = struct{}{}
}

func (v *vigil) remove(o *ownership) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.owned, o)
	if len(v.owned) == 0 && v.timer != nil {
		v.timer.Stop()
		v.timer = nil
	}
}

func (v *vigil) look() {
	var list []*ownership
	v.mu.Lock()
	if v.timer != nil {
		v.timer.Reset(lookForSleep)
	}
	if slept := suspended(); slept != v.slept {
		v.slept = slept
		for o := range v.owned {
			list = append(list, o)
		}
	}
	v.mu.Unlock()
	for _, o := range list {
		o.expire() // which removes it if its lease is over
	}
}
