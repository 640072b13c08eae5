package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// Strategy says whether a Scheduler counts its Period from the start or the end of the last work.
type Strategy int

const (
	// FixedRate starts the work every Period. If the work takes longer than a Period, start times
	// pass meanwhile. The Scheduler then starts the work at once, but only for the last missed
	// start time. (Java's scheduleAtFixedRate, which Simba uses, makes up for each missed start
	// time.)
	FixedRate Strategy = iota
	// FixedDelay starts the work one Period after the end of the last work.
	FixedDelay
)

// String returns the strategy's name.
func (s Strategy) String() string {
	switch s {
	case FixedRate:
		return "FixedRate"
	case FixedDelay:
		return "FixedDelay"
	}
	return fmt.Sprintf("Strategy(%d)", int(s))
}

// ScheduleConfig configures a Scheduler.
type ScheduleConfig struct {
	// Mutex, ID, TTL and Transition are as in ContenderConfig. The owner of the mutex is the
	// leader.
	Mutex           string
	ID              string
	TTL, Transition time.Duration

	InitialDelay time.Duration // how long a new leader waits before its first work; 0 = not at all
	Period       time.Duration // more than 0
	Strategy     Strategy      // the zero value is FixedRate

	// AlignToClock starts the work at multiples of Period on the wall clock in UTC. A Period of 1 h
	// starts it at each full hour, a Period of 24 h at midnight. So a new leader does not repeat
	// work that the previous leader has done. AlignToClock needs FixedRate, and InitialDelay 0.
	//
	// The Scheduler skips a start time if no process leads then, or if the last work still runs. If
	// the leader dies during the work, nobody finishes it. If the clocks of two processes differ
	// and the leader changes near a start time, the work may run twice.
	//
	// Without AlignToClock, a new leader counts the period from the start of its tenure.
	AlignToClock bool

	// Work is called at each start time. Its context ends when the leadership ends. Work should
	// then return soon: if the mutex was lost, the next leader may work already. If Work returns an
	// error or panics, the Scheduler logs that, and the schedule continues. If Work ends its
	// goroutine (runtime.Goexit), the Scheduler logs that, resigns, and contends again after a TTL.
	Work func(ownership context.Context) error
}

// Scheduler does periodic work in one of many processes, like the scheduler of Simba. It begins the
// schedule when it acquires the mutex, and ends it when the mutex is lost or released. One
// Scheduler never calls Work twice at the same time. A new Scheduler is stopped, and a stopped one
// may be started again. It is safe for concurrent use.
type Scheduler struct {
	cfg       ScheduleConfig
	contender *Contender
}

// NewScheduler returns a stopped Scheduler. The error names the field that is not valid.
func (c *Client) NewScheduler(cfg ScheduleConfig) (*Scheduler, error) {
	switch {
	case cfg.InitialDelay < 0:
		return nil, fmt.Errorf("InitialDelay is %v, less than 0", cfg.InitialDelay)
	case cfg.Period <= 0:
		return nil, fmt.Errorf("Period is %v, not more than 0", cfg.Period)
	case cfg.Strategy != FixedRate && cfg.Strategy != FixedDelay:
		return nil, fmt.Errorf("Strategy is %v, not FixedRate or FixedDelay", cfg.Strategy)
	case cfg.AlignToClock && cfg.Strategy != FixedRate:
		return nil, fmt.Errorf("AlignToClock goes with FixedRate only, and Strategy is %v", cfg.Strategy)
	case cfg.AlignToClock && cfg.InitialDelay != 0:
		return nil, fmt.Errorf("AlignToClock goes without InitialDelay, which is %v", cfg.InitialDelay)
	case cfg.Work == nil:
		return nil, errors.New("Work is nil")
	}
	s := &Scheduler{cfg: cfg}
	var err error
	s.contender, err = c.NewContender(ContenderConfig{
		Mutex: cfg.Mutex, ID: cfg.ID, TTL: cfg.TTL, Transition: cfg.Transition, OnAcquired: s.lead,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// ID returns the contender id.
func (s *Scheduler) ID() string { return s.contender.ID() }

// Run runs the Scheduler until ctx ends, see [Contender.Run].
func (s *Scheduler) Run(ctx context.Context) error { return s.contender.Run(ctx) }

// Start starts the Scheduler, see [Contender.Start].
func (s *Scheduler) Start() error { return s.contender.Start() }

// Stop stops the Scheduler, see [Contender.Stop]. If Work calls Stop with its ownership
// context, Stop does not wait.
func (s *Scheduler) Stop(ctx context.Context) error { return s.contender.Stop(ctx) }

// Quit stops the Scheduler in the background. Work may call it.
func (s *Scheduler) Quit() { s.contender.Quit() }

// Resign releases the mutex for the next waiter, see [Contender.Resign].
func (s *Scheduler) Resign() { s.contender.Resign() }

// IsOwner reports whether this Scheduler is the leader at this moment.
func (s *Scheduler) IsOwner() bool { return s.contender.IsOwner() }

// Owner returns the leader, see [Contender.Owner].
func (s *Scheduler) Owner() Owner { return s.contender.Owner() }

// lead does the periodic work until the ownership ends.
func (s *Scheduler) lead(ownership context.Context, _ State) {
	next := s.first(time.Now())
	timer := time.NewTimer(next.wait(time.Now()))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ownership.Done():
		}
		if ownership.Err() != nil {
			return
		}
		if now := time.Now(); next.isDue(now) {
			s.work(ownership)
			next.advance(time.Now())
		} else {
			next.adjust(now)
		}
		timer.Reset(next.wait(time.Now()))
	}
}

// schedule computes the start times of the work of one leader.
type schedule struct {
	cfg  *ScheduleConfig
	next time.Time // without a monotonic reading if AlignToClock is set
}

// clockCheckEvery bounds each wait for a time of the wall clock, because the clock may be set
// during the wait.
const clockCheckEvery = time.Minute

// first returns the schedule of a leader that begins now.
func (s *Scheduler) first(now time.Time) *schedule {
	n := &schedule{cfg: &s.cfg, next: now.Add(s.cfg.InitialDelay)}
	if n.cfg.AlignToClock {
		n.next = n.multipleAfter(now)
	}
	return n
}

// wait returns how long to wait before isDue is called again.
func (n *schedule) wait(now time.Time) time.Duration {
	if n.cfg.AlignToClock {
		return min(n.next.Sub(now.Round(0)), clockCheckEvery)
	}
	return n.next.Sub(now)
}

func (n *schedule) isDue(now time.Time) bool { return n.wait(now) <= 0 }

// adjust moves the next start time if the wall clock was set back so far that this time is more
// than two periods away.
func (n *schedule) adjust(now time.Time) {
	if n.cfg.AlignToClock && n.next.Sub(now.Round(0)) > 2*n.cfg.Period {
		n.next = n.multipleAfter(now)
	}
}

// advance sets the next start time. It is called when the work has ended.
func (n *schedule) advance(now time.Time) {
	last := n.next
	switch {
	case n.cfg.AlignToClock:
		n.next = n.multipleAfter(now)
		if n.next.Equal(last) { // the clock was set back, and the work for this time is done
			n.next = n.next.Add(n.cfg.Period)
		}
	case n.cfg.Strategy == FixedDelay:
		n.next = now.Add(n.cfg.Period)
	default:
		n.next = last.Add(n.cfg.Period)
		if late := now.Sub(n.next); late > 0 {
			n.next = n.next.Add(late.Truncate(n.cfg.Period)) // the last missed start time
		}
	}
}

// multipleAfter returns the first multiple of the period on the wall clock after t.
func (n *schedule) multipleAfter(t time.Time) time.Time {
	return t.Round(0).Truncate(n.cfg.Period).Add(n.cfg.Period) // Round(0): no monotonic reading
}

// work calls Work. If Work fails, panics or ends its goroutine, work logs that.
func (s *Scheduler) work(ownership context.Context) {
	log := s.contender.c.log.With("mutex", s.cfg.Mutex, "contender", s.ID())
	done := s.contender.c.beginWork(s.contender.terms, ownership)
	failure := errWorkEnded
	returned := false
	defer func() {
		p := recover()
		switch {
		case p != nil:
			log.Error("scheduled work panicked", "panic", p, "stack", string(debug.Stack()))
		case !returned:
			log.Error("scheduled work ended its goroutine; the scheduler resigns and contends again after a TTL")
			s.contender.resign(resignForTTL)
		}
		done(failure)
	}()
	err := s.cfg.Work(ownership)
	returned, failure = true, err
	if err != nil {
		log.Error("scheduled work failed", "err", err)
	}
}
