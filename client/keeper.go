package client

import (
	"container/heap"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp/client/internal/suspend"
)

// suspendCheckEvery is how often the keeper checks whether the machine was suspended. A timer of Go
// stops during a suspension, but a lease does not.
const suspendCheckEvery = 200 * time.Millisecond

// keeper decides when the leases of a Client are renewed or end. It runs on one timer, and only while
// there are leases. It never waits: requests run on goroutines of their own, so one without a reply
// delays no other lease. The zero value is ready to use. Safe for concurrent use.
type keeper struct {
	mu        sync.Mutex // guards what follows, and the entries of the leases
	leases    leaseHeap
	timer     *time.Timer
	at        time.Time     // when the timer fires; zero = it does not run
	suspended time.Duration // suspend.Time at the last check
}

// entry is the place of a lease in the heap.
type entry struct {
	next  time.Time
	index int // from 1; 0 = not in the heap
	over  bool
}

// schedule makes the keeper call act of a lease at a time, or earlier.
func (k *keeper) schedule(l *lease, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case l.entry.over:
		return
	case l.entry.index == 0:
		l.entry.next = at
		heap.Push(&k.leases, l)
	case at.Before(l.entry.next):
		l.entry.next = at
		heap.Fix(&k.leases, l.entry.index-1)
	}
	k.armLocked()
}

// remove removes a lease for ever.
func (k *keeper) remove(l *lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.entry.over = true
	if l.entry.index != 0 {
		heap.Remove(&k.leases, l.entry.index-1)
	}
}

// armLocked sets the timer for the first lease, and at the latest for the next check of suspension.
func (k *keeper) armLocked() {
	if len(k.leases) == 0 {
		return
	}
	t := time.Now()
	at := earlier(k.leases[0].entry.next, t.Add(suspendCheckEvery))
	switch {
	case k.at.IsZero() || at.Before(k.at):
	default:
		return
	}
	if k.at.IsZero() {
		k.suspended = suspend.Time()
	}
	k.at = at
	if k.timer == nil {
		k.timer = time.AfterFunc(at.Sub(t), k.tick)
	} else {
		k.timer.Reset(at.Sub(t))
	}
}

// tick calls act of all leases that are due; of all leases if the machine was suspended.
func (k *keeper) tick() {
	t := time.Now()
	var due []*lease
	k.mu.Lock()
	k.at = time.Time{}
	all := suspend.Time() != k.suspended
	for len(k.leases) > 0 && (all || !t.Before(k.leases[0].entry.next)) {
		due = append(due, heap.Pop(&k.leases).(*lease))
	}
	k.armLocked()
	k.mu.Unlock()
	for _, l := range due {
		if next, again := l.act(t); again {
			k.schedule(l, next)
		}
	}
}

// leaseHeap is a heap of leases by the time at which act is due.
type leaseHeap []*lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].entry.next.Before(h[j].entry.next) }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].entry.index, h[j].entry.index = i+1, j+1
}

// Push implements heap.Interface.
func (h *leaseHeap) Push(x any) {
	l := x.(*lease)
	*h = append(*h, l)
	l.entry.index = len(*h)
}

// Pop implements heap.Interface.
func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	l.entry.index = 0
	return l
}
