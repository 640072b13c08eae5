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
	// FixedRate counts from beat to beat: every Period, however long the work takes. Beats that were missed
	// since it took longer are left out but for the last, which follows at once. (Java's scheduleAtFixedRate,
	// which Simba uses, makes up for all of them.)
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

	// Work is called on each beat. Its context ends when leadership does: it should return soon then, since
	// the next leader may work already if the mutex was lost. A panic is logged with its stack, and
	// the schedule goes on.
	Work func(ownership context.Context)
}

// Scheduler does periodic work in one of many processes: Simba's scheduler. It begins when
// the mutex is acquired and ends at once when that is lost or released. Work never overlaps
// with itself in the process. It begins stopped and may be started again
// after each stop; stopped, it has no goroutine.
type Scheduler struct {
	cfg       ScheduleConfig
	contender *Contender
}

// NewScheduler returns a stopped Scheduler. The error names the field that cannot be.
func (c *Client) NewScheduler(cfg ScheduleConfig) (*Scheduler, error) {
	switch {
	case cfg.InitialDelay < 0:
		return nil, fmt.Errorf("InitialDelay is %v, less than 0", cfg.InitialDelay)
	case cfg.Period <= 0:
		return nil, fmt.Errorf("Period is %v, not more than 0", cfg.Period)
	case cfg.Strategy != FixedRate && cfg.Strategy != FixedDelay:
		return nil, fmt.Errorf("Strategy is %v, not FixedRate or FixedDelay", cfg.Strategy)
	case cfg.Work == nil:
		return nil, errors.New("Work is nil")
	}
	s := &Scheduler{cfg: cfg}
	var err error
	s.contender, err = c.NewContender(ContenderConfig{
		Mutex: cfg.Mutex, ID: cfg.ID, TTL: cfg.TTL, Transition: cfg.Transition,
		OnAcquired: s.lead, OnReleased: func(State) {},
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// ID returns the contender id.
func (s *Scheduler) ID() string { return s.contender.ID() }

// Start begins to contend, see [Contender.Start].
func (s *Scheduler) Start() error { return s.contender.Start() }

// Stop ends leading and contending, see [Contender.Stop]. Called by Work, it must not be
// waited for: cancel ctx before.
func (s *Scheduler) Stop(ctx context.Context) error { return s.contender.Stop(ctx) }

// IsOwner reports whether it leads at this moment.
func (s *Scheduler) IsOwner() bool { return s.contender.IsOwner() }

// Owner returns who leads, see [Contender.Owner].
func (s *Scheduler) Owner() Owner { return s.contender.Owner() }

// lead works until the ownership ends.
func (s *Scheduler) lead(ownership context.Context, _ State) {
	next := time.Now().Add(s.cfg.InitialDelay)
	beat := time.NewTimer(s.cfg.InitialDelay)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
		case <-ownership.Done():
		}
		if ownership.Err() != nil {
			return
		}
		s.work(ownership)
		now := time.Now()
		if s.cfg.Strategy == FixedDelay {
			next = now.Add(s.cfg.Period)
		} else {
			next = next.Add(s.cfg.Period)
			if late := now.Sub(next); late > 0 {
				next = next.Add(late.Truncate(s.cfg.Period)) // the last of those that were missed
			}
		}
		beat.Reset(next.Sub(now))
	}
}

func (s *Scheduler) work(ownership context.Context) {
	defer func() {
		if p := recover(); p != nil {
			s.contender.c.log.Error("scheduled work panicked", "mutex", s.cfg.Mutex, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	s.cfg.Work(ownership)
}
