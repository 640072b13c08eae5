package redis

import (
	"container/heap"
	"context"
	"math"
	"sync"
	"time"
)

// schedule holds for each mutex when the server reconciles it next. A move to a later time is
// cheap: the heap entry moves only when its earlier time has come.
//
// Replies arrive in any order. So each time has an asOf: what Redis' clock showed in the reply that
// set the time. Only a reply with a later asOf may put the time off. A reply with the same asOf may
// cancel it. If Redis' clock is set back, the server reconciles mutexes too early for a while. Safe
// for concurrent use.
type schedule struct {
	mu      sync.Mutex // guards the fields below
	byMutex map[string]*dueTime
	heap    dueTimes
	wake    chan struct{} // capacity 1: signals that the first time is earlier than before
}

type dueTime struct {
	mutex  string
	at     time.Time
	asOf   int64     // Unix milliseconds; neverPutOff = it must not be put off
	heapAt time.Time // its key in the heap; never later than the field at
	index  int
}

// neverPutOff is later than the asOf of any reply.
const neverPutOff = math.MaxInt64

func newSchedule() *schedule {
	return &schedule{byMutex: make(map[string]*dueTime), wake: make(chan struct{}, 1)}
}

// set sets the time of a mutex. It puts an earlier time off only if that time has an earlier asOf.
func (s *schedule) set(mutex string, at time.Time, asOf int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.byMutex[mutex]; d == nil || asOf > d.asOf || at.Before(d.at) {
		s.setLocked(mutex, at, asOf)
	}
}

// bringForward sets the time of a mutex, unless it has an earlier one.
func (s *schedule) bringForward(mutex string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.byMutex[mutex]; d == nil || at.Before(d.at) {
		s.setLocked(mutex, at, neverPutOff)
	}
}

// cancel removes the time of a mutex, unless that time has a later asOf. A contender that queues
// later sets a new time.
func (s *schedule) cancel(mutex string, asOf int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.byMutex[mutex]; d != nil && asOf >= d.asOf {
		heap.Remove(&s.heap, d.index)
		delete(s.byMutex, mutex)
	}
}

// setLocked sets the time of a mutex. It moves the heap entry only to an earlier time.
func (s *schedule) setLocked(mutex string, at time.Time, asOf int64) {
	d := s.byMutex[mutex]
	if d != nil {
		d.asOf = max(d.asOf, asOf)
	}
	switch {
	case d == nil:
		d = &dueTime{mutex: mutex, at: at, asOf: asOf, heapAt: at}
		s.byMutex[mutex] = d
		heap.Push(&s.heap, d)
	case at.Before(d.heapAt):
		d.at, d.heapAt = at, at
		heap.Fix(&s.heap, d.index)
	default:
		d.at = at
		return
	}
	if d.index == 0 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// pop removes and returns a mutex whose time has come. If there is none, it returns how long to
// wait before the next call.
func (s *schedule) pop(now time.Time) (mutex string, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.heap) > 0 {
		d := s.heap[0]
		switch {
		case d.heapAt.After(now):
			return "", d.heapAt.Sub(now)
		case d.at.After(now):
			d.heapAt = d.at
			heap.Fix(&s.heap, 0)
			continue
		}
		heap.Pop(&s.heap)
		delete(s.byMutex, d.mutex)
		return d.mutex, 0
	}
	return "", time.Hour
}

// run calls reconcile for each mutex at its time, until ctx ends.
func (s *schedule) run(ctx context.Context, reconcile func(mutex string)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		mutex, wait := s.pop(time.Now())
		if mutex != "" {
			reconcile(mutex)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

// dueTimes is a heap by heapAt.
type dueTimes []*dueTime

func (h dueTimes) Len() int           { return len(h) }
func (h dueTimes) Less(i, j int) bool { return h[i].heapAt.Before(h[j].heapAt) }
func (h dueTimes) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *dueTimes) Push(x any) {
	d := x.(*dueTime)
	d.index = len(*h)
	*h = append(*h, d)
}
func (h *dueTimes) Pop() any {
	old := *h
	d := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return d
}
