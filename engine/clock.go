package engine

import (
	"math"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Clock is an engine's clock. It advances from base by Go's monotonic clock, so a change of the
// machine's clock does not move the end of a lease.
type Clock struct {
	start time.Time
	base  simba.Instant
	wall  func() time.Time                        // nil = time.Now
	after func(time.Duration, func()) *time.Timer // time.AfterFunc, or another source of timers
}

// NewClock returns a clock that shows base now.
func NewClock(base simba.Instant) Clock {
	return Clock{start: time.Now(), base: base, after: time.AfterFunc}
}

// ClockOf returns a clock that shows the same as source, or a little less. If leases must survive a
// restart, source must return the time since the machine's boot.
//
// ClockOf compares source with Go's clock many times, and uses the fastest comparison. If the
// process loses its processor during that comparison, all leases end too late by the time lost.
func ClockOf(source func() simba.Instant) Clock {
	var best Clock
	shortest := time.Duration(math.MaxInt64)
	for range 100 {
		began := time.Now()
		c := Clock{base: source(), after: time.AfterFunc}
		c.start = time.Now() // after source, so that no lease ends too early
		if took := c.start.Sub(began); took < shortest {
			best, shortest = c, took
		}
	}
	return best
}

// WithWall returns the clock with another source of wall time; nil = the machine's clock. wall must
// be safe for concurrent use.
func (c Clock) WithWall(wall func() time.Time) Clock {
	c.wall = wall
	return c
}

// WithTimers returns the clock with another source of timers, in place of time.AfterFunc. New makes
// one timer for each 64th of the hashes, in their order.
func (c Clock) WithTimers(afterFunc func(time.Duration, func()) *time.Timer) Clock {
	c.after = afterFunc
	return c
}

// Now returns the present instant.
func (c Clock) Now() simba.Instant { return c.base.Add(time.Since(c.start)) }

// read returns the present instant, and the wall time in Unix milliseconds.
func (c Clock) read() (now simba.Instant, wall int64) {
	t := time.Now()
	now = c.base.Add(t.Sub(c.start))
	if c.wall != nil {
		t = c.wall()
	}
	return now, t.UnixMilli()
}

func (c Clock) wallNow() time.Time {
	if c.wall != nil {
		return c.wall()
	}
	return time.Now()
}
