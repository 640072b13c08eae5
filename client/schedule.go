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
}

// Every runs f again and again in one of many processes, until ctx ends. The process that runs it
// holds the mutex from run to run, and renews it. f is never called twice at the same time. Its
// context ends with the tenure and with ctx; f should then return soon.
//
// A new leader counts the Period from the start of its tenure: if the leader changes, a run may come
// earlier or later than a Period after the last one, and a leader that dies during a run leaves it
// unfinished.
//
// If f returns Final(err), Every returns err. Every logs any other error, and the schedule goes on.
// If f panics, Every releases the mutex, and the panic passes on. For all other errors see
// [Client.Lead].
func (c *Client) Every(ctx context.Context, mutex string, s Schedule, f func(context.Context) error, o ...Option) error {
	switch {
	case f == nil:
		return fmt.Errorf("schedule %s: f is nil", mutex)
	case s.Period <= 0:
		return fmt.Errorf("schedule %s: Period is %v, not more than 0", mutex, s.Period)
	case s.InitialDelay < 0:
		return fmt.Errorf("schedule %s: InitialDelay is %v, less than 0", mutex, s.InitialDelay)
	}
	return c.lead(ctx, mutex, o, func(l *lease) error { return l.follow(s, f) })
}

// follow runs f by the schedule until the tenure ends.
func (l *lease) follow(s Schedule, f func(context.Context) error) error {
	next := time.Now().Add(s.InitialDelay)
	for {
		select {
		case <-time.After(time.Until(next)):
		case <-l.Done():
		}
		if l.Err() != nil {
			return nil
		}
		err := l.once(f)
		if end := (*final)(nil); errors.As(err, &end) {
			return err
		}
		if err != nil && l.Err() == nil {
			l.c.log.Error("scheduled work failed", "mutex", l.terms.mutex, "contender", l.terms.id, "err", err)
		}
		next = s.after(next, time.Now())
	}
}

// after returns the start time of the run that follows one. start is when that one was to start.
func (s Schedule) after(start, end time.Time) time.Time {
	if s.FixedDelay {
		return end.Add(s.Period)
	}
	next := start.Add(s.Period)
	if late := end.Sub(next); late > 0 {
		next = next.Add(late.Truncate(s.Period)) // the last missed start time
	}
	return next
}
