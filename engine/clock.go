package engine

import (
	"time"

	"github.com/simba-resp/simba-resp"
)

// Clock tells an engine's time. It counts on from base by Go's monotonic clock,
// so setting the machine's clock moves no lease.
type Clock struct {
	start time.Time
	base  simba.Instant
}

// NewClock returns a clock that shows base now: the time since the machine's boot
// if leases are to be understood after a restart.
func NewClock(base simba.Instant) Clock { return Clock{start: time.Now(), base: base} }

// Now returns the present instant.
func (c Clock) Now() simba.Instant { return c.base.Add(time.Since(c.start)) }

// read returns the present on both scales, for leases and for people.
func (c Clock) read() (now simba.Instant, wall int64) {
	t := time.Now()
	return c.base.Add(t.Sub(c.start)), t.UnixMilli()
}
