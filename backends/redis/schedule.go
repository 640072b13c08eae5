package redis

import (
	"math"
	"sync"
	"time"
)

// schedule holds for each mutex when the server reconciles it next.
//
// Replies arrive in any order. So each time has an asOf: what Redis' clock showed in the reply that
// set the time. Only a reply with a later asOf may put the time off. A reply with the same asOf may
// cancel it. If Redis' clock is set back, the server reconciles mutexes too early for a while. Safe
// for concurrent use.
type schedule struct {
	reconcile func(mutex string) // called when the time of a mutex has come

	mu      sync.Mutex // guards the field below
	byMutex map[string]*dueTime
}

type dueTime struct {
	at    time.Time
	asOf  int64 // Unix milliseconds; neverPutOff = it must not be put off
	timer *time.Timer
}

// neverPutOff is later than the asOf of any reply.
const neverPutOff = math.MaxInt64

// set sets the time of a mutex. It puts an earlier time off only if that time has an earlier asOf.
func (s *schedule) set(mutex string, at time.Time, asOf int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.byMutex[mutex]; d == nil || asOf > d.asOf || at.Before(d.at) {
		s.setLocked(mutex, at, asOf)
	}
}

func (s *schedule) setLocked(mutex string, at time.Time, asOf int64) {
	d := s.byMutex[mutex]
	if d == nil {
		d = &dueTime{}
		d.timer = time.AfterFunc(time.Until(at), func() { s.fire(mutex, d) })
		s.byMutex[mutex] = d
	} else {
		d.timer.Reset(time.Until(at))
	}
	d.at, d.asOf = at, max(d.asOf, asOf)
}

// bringForward sets the time of mutexes, except those that have an earlier one.
func (s *schedule) bringForward(at time.Time, mutexes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range mutexes {
		if d := s.byMutex[m]; d == nil || at.Before(d.at) {
			s.setLocked(m, at, neverPutOff)
		}
	}
}

// cancel removes the time of a mutex, unless that time has a later asOf. A contender that queues
// later sets a new time.
func (s *schedule) cancel(mutex string, asOf int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.byMutex[mutex]; d != nil && asOf >= d.asOf {
		d.timer.Stop()
		delete(s.byMutex, mutex)
	}
}

// stop stops the timers. The owner of the schedule calls it last.
func (s *schedule) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.byMutex {
		d.timer.Stop()
	}
}

// fire reconciles a mutex, unless its time has been put off or cancelled meanwhile.
func (s *schedule) fire(mutex string, d *dueTime) {
	s.mu.Lock()
	due := s.byMutex[mutex] == d && !d.at.After(time.Now())
	if due {
		delete(s.byMutex, mutex)
	}
	s.mu.Unlock()
	if due {
		s.reconcile(mutex)
	}
}
