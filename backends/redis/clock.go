package redis

import (
	"strconv"
	"sync/atomic"
	"time"
)

// clock estimates what a node's clock shows, from the node's replies. Safe for concurrent use.
type clock struct{ last atomic.Pointer[reading] }

// reading says that the node's clock showed millis between at-uncertainty and at.
type reading struct {
	millis      int64
	at          time.Time // on this server's clock
	uncertainty time.Duration
}

// maxReadingAge is how long a reading is preferred to one that is less exact. In that time two
// clocks drift apart by a few milliseconds at most.
const maxReadingAge = 10 * time.Second

// update notes what the node's clock showed between sent and now.
func (c *clock) update(millis int64, sent time.Time) {
	now := time.Now()
	uncertainty := now.Sub(sent)
	if last := c.last.Load(); last == nil || uncertainty < last.uncertainty || now.Sub(last.at) > maxReadingAge {
		c.last.Store(&reading{millis, now, uncertainty})
	}
}

// replace is update for a clock that was set meanwhile: earlier readings no longer count.
func (c *clock) replace(millis int64, sent time.Time) {
	now := time.Now()
	c.last.Store(&reading{millis, now, now.Sub(sent)})
}

// noDeadline is the deadline of a script at a node whose clock is not known yet.
const noDeadline = "9007199254740992"

// atNode returns what the node's clock shows at an instant of this server's clock, or somewhat
// less.
func (c *clock) atNode(at time.Time) string {
	last := c.last.Load()
	if last == nil {
		return noDeadline
	}
	return strconv.FormatInt(last.millis+at.Sub(last.at).Milliseconds(), 10)
}
