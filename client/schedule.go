package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Schedule says when Every runs its work. The owner of the mutex runs it.
type Schedule struct {
	Period       time.Duration // from one run to the next, more than 0
	InitialDelay time.Duration // how long a new leader waits before its first run; 0 = not at all

	// FixedDelay counts the Period from the end of a run. Otherwise it counts from the start. If a
	// run takes longer than a Period, the next one then begins at once, but only for the last missed
	// start time. (Java's scheduleAtFixedRate, which Simba uses, makes up for each of them.)
	FixedDelay bool

	// AlignToClock starts the runs at multiples of Period on the wall clock in UTC. A Period of 1 h
	// starts one at each full hour, a Period of 24 h at midnight. So a new leader seldom repeats
	// what the previous leader has done, see [Client.Every]. It is an error with FixedDelay or
	// InitialDelay.
	AlignToClock bool
}

func (s *Schedule) check() error {
	switch {
	case s.Period <= 0:
		return fmt.Errorf("Period is %v, not more than 0", s.Period)
	case s.InitialDelay < 0:
		return fmt.Errorf("InitialDelay is %v, less than 0", s.InitialDelay)
	case s.AlignToClock && s.FixedDelay:
		return errors.New("AlignToClock excludes FixedDelay")
	case s.AlignToClock && s.InitialDelay != 0:
		return fmt.Errorf("AlignToClock excludes InitialDelay, which is %v", s.InitialDelay)
	}
	return nil
}

// Every runs f again and again in one of many processes, until ctx ends. The process that runs it
// holds the mutex from run to run, and renews it. f is never called twice at the same time. Its
// context ends with the tenure and with ctx; f should then return soon.
//
// A new leader counts the Period from the start of its tenure: if the leader changes, a run may come
// earlier or later than a Period after the last one, and a leader that dies during a run leaves it
// unfinished. With AlignToClock, a start time is skipped if no process leads then, and f may run
// twice for it if the clocks of two processes differ and the leader changes near it.
//
// If f returns Final(err), Every returns err. Every logs any other error, and the schedule goes on.
// If f panics, Every releases the mutex, and the panic passes on. For all other errors see
// [Client.Lead].
func (c *Client) Every(ctx context.Context, mutex string, s Schedule, f func(context.Context) error, o ...Option) error {
	if f == nil {
		return fmt.Errorf("schedule %s: f is nil", mutex)
	}
	if err := s.check(); err != nil {
		return fmt.Errorf("schedule %s: %w", mutex, err)
	}
	return c.lead(ctx, mutex, o, func(l *lease) error { return l.follow(&s, f) })
}

// follow runs f by the schedule until the tenure ends.
func (l *lease) follow(s *Schedule, f func(context.Context) error) error {
	next := s.first(time.Now())
	timer := time.NewTimer(next.wait(time.Now()))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.Done():
		}
		if l.Err() != nil {
			return nil
		}
		if current := time.Now(); next.isDue(current) {
			err := l.once(f)
			if end := (*final)(nil); errors.As(err, &end) {
				return err
			}
			if err != nil && l.Err() == nil {
				l.c.log.Error("scheduled work failed", "mutex", l.terms.mutex, "contender", l.terms.id, "err", err)
			}
			next.advance(time.Now())
		} else {
			next.adjust(current)
		}
		timer.Reset(next.wait(time.Now()))
	}
}

// startTimes computes the start times of the runs of one leader.
type startTimes struct {
	*Schedule
	next time.Time // without a monotonic reading if AlignToClock is set
}

// clockCheckEvery bounds each wait for a time of the wall clock, because the clock may be set
// during the wait.
const clockCheckEvery = time.Minute

// first returns the start times of a leader that begins now.
func (s *Schedule) first(now time.Time) *startTimes {
	n := &startTimes{s, now.Add(s.InitialDelay)}
	if s.AlignToClock {
		n.next = n.multipleAfter(now)
	}
	return n
}

// wait returns how long to wait before isDue is called again.
func (n *startTimes) wait(now time.Time) time.Duration {
	if n.AlignToClock {
		return min(n.next.Sub(now.Round(0)), clockCheckEvery)
	}
	return n.next.Sub(now)
}

func (n *startTimes) isDue(now time.Time) bool { return n.wait(now) <= 0 }

// adjust moves the next start time if the wall clock was set back so far that this time is more
// than two periods away.
func (n *startTimes) adjust(now time.Time) {
	if n.AlignToClock && n.next.Sub(now.Round(0)) > 2*n.Period {
		n.next = n.multipleAfter(now)
	}
}

// advance sets the next start time. It is called when a run has ended.
func (n *startTimes) advance(now time.Time) {
	last := n.next
	switch {
	case n.AlignToClock:
		n.next = n.multipleAfter(now)
		if n.next.Equal(last) { // the clock was set back, and the run for this time is done
			n.next = n.next.Add(n.Period)
		}
	case n.FixedDelay:
		n.next = now.Add(n.Period)
	default:
		n.next = last.Add(n.Period)
		if late := now.Sub(n.next); late > 0 {
			n.next = n.next.Add(late.Truncate(n.Period)) // the last missed start time
		}
	}
}

// multipleAfter returns the first multiple of the period on the wall clock after t.
func (n *startTimes) multipleAfter(t time.Time) time.Time {
	return t.Round(0).Truncate(n.Period).Add(n.Period) // Round(0): no monotonic reading
}
