package redis

import (
	"container/heap"
	"context"
	"math"
	"sync"
	"time"
)

// agenda says when to look after which mutex. A later time for a mutex is only noted:
// when the earlier one comes, the mutex is put off. So renewals cost a map's lookup.
//
// Replies are taken in in any order, so each says what Redis' clock showed when its script ran, asOf: a
// look is put off, or given up, only by what is known of later than what it was made for. If the clock
// is set back, looks come too early for a while. Safe for concurrent use.
type schedule struct {
	mu      sync.Mutex // guards what follows
	byMutex map[string]*dueTime
	heap    dueTimes
	wake    chan struct{} // of one: the first dueTime is earlier than before
}

type dueTime struct {
	mutex string
	at    time.Time // when
	asOf  int64     // Unix milliseconds of the reply that it was made for; always = it may not be put off
	slot  time.Time // by which it stands in the heap, not later than at
	index int
}

func newSchedule() *schedule {
	return &schedule{byMutex: make(map[string]*dueTime), wake: make(chan struct{}, 1)}
}

// always is later than any reply.
const always = math.MaxInt64

// set makes at the time of the mutex, or advances it if what it was made for is as of later.
func (a *schedule) set(mutex string, at time.Time, asOf int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if x := a.byMutex[mutex]; x == nil || asOf > x.asOf || at.Before(x.at) {
		a.setLocked(mutex, at, asOf)
	}
}

// advance makes at the time of the mutex unless it has an earlier one.
func (a *schedule) advance(mutex string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if x := a.byMutex[mutex]; x == nil || at.Before(x.at) {
		a.setLocked(mutex, at, always)
	}
}

// cancel forgets the time of the mutex, unless what it was made for is as of later. Of what is as of the same millisecond the
// release is taken for the later: who queues behind the next owner makes a time anew.
func (a *schedule) cancel(mutex string, asOf int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if x := a.byMutex[mutex]; x != nil && asOf >= x.asOf {
		heap.Remove(&a.heap, x.index)
		delete(a.byMutex, mutex)
	}
}

func (a *schedule) setLocked(mutex string, at time.Time, asOf int64) {
	x := a.byMutex[mutex]
	if x != nil {
		x.asOf = max(x.asOf, asOf)
	}
	switch {
	case x == nil:
		x = &dueTime{mutex: mutex, at: at, asOf: asOf, slot: at}
		a.byMutex[mutex] = x
		heap.Push(&a.heap, x)
	case at.Before(x.slot):
		x.at, x.slot = at, at
		heap.Fix(&a.heap, x.index)
	default:
		x.at = at
		return
	}
	if x.index == 0 {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

// due takes a mutex whose time has come, or says how long until the next may be.
func (a *schedule) due(now time.Time) (mutex string, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.heap) > 0 {
		x := a.heap[0]
		switch {
		case x.slot.After(now):
			return "", x.slot.Sub(now)
		case x.at.After(now):
			x.slot = x.at
			heap.Fix(&a.heap, 0)
			continue
		}
		heap.Pop(&a.heap)
		delete(a.byMutex, x.mutex)
		return x.mutex, 0
	}
	return "", time.Hour
}

// run calls attend for each mutex in its time, until ctx ends.
func (a *schedule) run(ctx context.Context, attend func(mutex string)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		mutex, wait := a.due(time.Now())
		if mutex != "" {
			attend(mutex)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-a.wake:
		case <-ctx.Done():
		}
	}
}

// appointments is a heap by slot.
type dueTimes []*dueTime

func (h dueTimes) Len() int           { return len(h) }
func (h dueTimes) Less(i, j int) bool { return h[i].slot.Before(h[j].slot) }
func (h dueTimes) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *dueTimes) Push(x any) {
	p := x.(*dueTime)
	p.index = len(*h)
	*h = append(*h, p)
}
func (h *dueTimes) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return x
}
