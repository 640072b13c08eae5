package resp

import (
	"runtime"
	"sync"
	"time"
)

// fewPushers is how many pushers may wait for a slot without delay for publishers.
const fewPushers = 16

// pushers are the goroutines that send push queues, one for each connection with queued pushes.
// Few of them send at a time, first come, first served. Meanwhile the queues of the others grow, so
// that one write sends many pushes. A pusher that would wait for its client gives up its slot first.
type pushers struct {
	slots chan struct{}

	mu       sync.Mutex    // protects this group
	waiting  int           // pushers without a slot
	caughtUp chan struct{} // closed when waiting is small again; nil = no publisher waits
}

func newPushers() pushers {
	// One processor is left for those who publish.
	return pushers{slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1))}
}

// enter waits for a slot.
func (p *pushers) enter() {
	p.count(1)
	p.slots <- struct{}{}
	p.count(-1)
}

func (p *pushers) leave() { <-p.slots }

func (p *pushers) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting += n; p.caughtUp != nil && p.waiting <= fewPushers {
		close(p.caughtUp)
		p.caughtUp = nil
	}
}

// await returns when few pushers wait for a slot, or after publishWait.
func (p *pushers) await() {
	p.mu.Lock()
	if p.waiting <= fewPushers {
		p.mu.Unlock()
		return
	}
	if p.caughtUp == nil {
		p.caughtUp = make(chan struct{})
	}
	caughtUp := p.caughtUp
	p.mu.Unlock()
	select {
	case <-caughtUp:
	case <-time.After(publishWait):
	}
}
