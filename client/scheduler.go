package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// Strategy is how a Scheduler counts its period.
type Strategy int

const (
	// FixedRate counts from beat to beat: every Period, however long the work takes. Beats that are
	// missed because the work took longer are dropped, except the last, which follows at once.
	// (Java's scheduleAtFixedRate, which Simba uses, makes up for all of them.)
	FixedRate Strategy = iota
	// FixedDelay counts from the end of the work to its next beginning.
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

// ScheduleConfig says what a Scheduler does, and when.
type ScheduleConfig struct {
	// Mutex, ID, TTL and Transition are as in ContenderConfig: whoever owns the mutex works.
	Mutex           string
	ID              string
	TTL, Transition time.Duration

	InitialDelay time.Duration // from becoming the leader to the first beat; 0 = at once
	Period       time.Duration // more than 0
	Strategy     Strategy      // the zero value is FixedRate

	// AlignToClock has the beats at the multiples of Period on the wall clock, counted in UTC: with
	// a Period of an hour on the full hour, of 24 h at midnight. So a leader that takes over does
	// not repeat the beat of the one before it. A beat at which no process leads is skipped and not
	// made up for: a leader that dies at 09:59:55 may cost the run of 10:00, and one that dies
	// during the run leaves it unfinished. So is a beat that work overran. Where the clocks of two
	// processes differ, a beat may still run twice if leadership changes just then. It goes with
	// FixedRate and without InitialDelay.
	//
	// Without it the beats are counted from becoming the leader: each new leader begins with one.
	AlignToClock bool

	// Work is called on each beat. Its context ends when leadership does: it should return soon
	// then, since the next leader may work already if the mutex was lost. An error is logged, a
	// panic too, with its stack, and the schedule goes on. If Work ends its goroutine
	// (runtime.Goexit), that is logged, and it resigns, and contends again after a TTL.
	Work func(ownership context.Context) error
}

// Scheduler does periodic work in one of many processes: Simba's scheduler. It begins when
// the mutex is acquired and ends at once when that is lost or released. Work never overlaps
// with itself in the process. It begins stopped and may be started again
// after each stop; stopped, it has no goroutine. Safe for concurrent use.
type Scheduler struct {
	cfg       ScheduleConfig
	contender *Contender
}

// NewScheduler returns a stopped Scheduler. The error names the field that is wrong.
func (c *Client) NewScheduler(cfg ScheduleConfig) (*Scheduler, error) {
	switch {
	case cfg.InitialDelay < 0:
		return nil, fmt.Errorf("InitialDelay is %v, less than 0", cfg.InitialDelay)
	case cfg.Period <= 0:
		return nil, fmt.Errorf("Period is %v, not more than 0", cfg.Period)
	case cfg.Strategy != FixedRate && cfg.Strategy != FixedDelay:
		return nil, fmt.Errorf("Strategy is %v, not FixedRate or FixedDelay", cfg.Strategy)
	case cfg.AlignToClock && cfg.Strategy != FixedRate:
		return nil, fmt.Errorf("AlignToClock goes with FixedRate, and Strategy is %v", cfg.Strategy)
	case cfg.AlignToClock && cfg.InitialDelay != 0:
		return nil, fmt.Errorf("AlignToClock leaves no choice of InitialDelay, and it is %v", cfg.InitialDelay)
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

// Run contends and works until ctx ends, see [Contender.Run].
func (s *Scheduler) Run(ctx context.Context) error { return s.contender.Run(ctx) }

// Start begins to contend, see [Contender.Start].
func (s *Scheduler) Start() error { return s.contender.Start() }

// Stop ends leading and contending, see [Contender.Stop]. Called by Work with its context it does
// not wait.
func (s *Scheduler) Stop(ctx context.Context) error { return s.contender.Stop(ctx) }

// Quit begins to stop and does not wait for it: unlike Stop it may be called by Work with any
// context.
func (s *Scheduler) Quit() { s.contender.Quit() }

// Resign has another lead, if one waits, see [Contender.Resign].
func (s *Scheduler) Resign() { s.contender.Resign() }

// IsOwner reports whether it leads at this moment.
func (s *Scheduler) IsOwner() bool { return s.contender.IsOwner() }

// Owner returns who leads, see [Contender.Owner].
func (s *Scheduler) Owner() Owner { return s.contender.Owner() }

// lead works until the ownership ends.
func (s *Scheduler) lead(ownership context.Context, _ State) {
	b := s.begin(time.Now())
	timer := time.NewTimer(b.wait(time.Now()))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ownership.Done():
		}
		if ownership.Err() != nil {
			return
		}
		if now := time.Now(); b.isDue(now) {
			s.work(ownership)
			b.follow(time.Now())
		} else {
			b.look(now)
		}
		timer.Reset(b.wait(time.Now()))
	}
}

// beats are those of one leader.
type beats struct {
	cfg  *ScheduleConfig
	next time.Time // aligned: by the wall clock alone
}

// wallLook is how long a wait for the wall clock lasts at most: it may be set meanwhile.
const wallLook = time.Minute

func (s *Scheduler) begin(now time.Time) *beats {
	b := &beats{cfg: &s.cfg, next: now.Add(s.cfg.InitialDelay)}
	if b.cfg.AlignToClock {
		b.next = b.multipleAfter(now)
	}
	return b
}

// wait is how long to wait before the next look whether a beat is due.
func (b *beats) wait(now time.Time) time.Duration {
	if b.cfg.AlignToClock {
		return min(b.next.Sub(now.Round(0)), wallLook)
	}
	return b.next.Sub(now)
}

func (b *beats) isDue(now time.Time) bool { return b.wait(now) <= 0 }

// look is for when no beat is due yet: the clock may have been set back by more than a period.
func (b *beats) look(now time.Time) {
	if b.cfg.AlignToClock && b.next.Sub(now.Round(0)) > 2*b.cfg.Period {
		b.next = b.multipleAfter(now)
	}
}

// follow makes the beat after the one that has just been worked on.
func (b *beats) follow(now time.Time) {
	last := b.next
	switch {
	case b.cfg.AlignToClock:
		b.next = b.multipleAfter(now)
		if b.next.Equal(last) { // the clock was set back a little
			b.next = b.next.Add(b.cfg.Period)
		}
	case b.cfg.Strategy == FixedDelay:
		b.next = now.Add(b.cfg.Period)
	default:
		b.next = last.Add(b.cfg.Period)
		if late := now.Sub(b.next); late > 0 {
			b.next = b.next.Add(late.Truncate(b.cfg.Period)) // the last of those that were missed
		}
	}
}

// multipleAfter is the first multiple of the period on the wall clock after t.
func (b *beats) multipleAfter(t time.Time) time.Time {
	return t.Round(0).Truncate(b.cfg.Period).Add(b.cfg.Period) // without the monotonic clock
}

func (s *Scheduler) work(ownership context.Context) {
	log := s.contender.c.log.With("mutex", s.cfg.Mutex, "contender", s.ID())
	returned := false
	defer func() {
		p := recover()
		switch {
		case p != nil:
			log.Error("scheduled work panicked", "panic", p, "stack", string(debug.Stack()))
		case !returned:
			log.Error("scheduled work ended its goroutine: it resigns for a TTL")
			s.contender.resign(afterATTL)
		}
	}()
	err := s.cfg.Work(ownership)
	returned = true
	if err != nil {
		log.Error("scheduled work failed", "err", err)
	}
}
