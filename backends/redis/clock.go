package redis

import (
	"strconv"
	"sync/atomic"
	"time"
)

// clock knows what a node's clock shows, by its replies. Safe for concurrent use.
type clock struct{ last atomic.Pointer[reading] }

// reading is what the node's clock showed before here it was at.
type reading struct {
	millis int64
	at     time.Time
	width  time.Duration // how long before, at most
}

// keep is how long a reading stands against one that is less exact: so long, that
// clocks cannot drift apart by more than some milliseconds.
const keep = 10 * time.Second

// read takes in what the clock showed between sent and now.
func (c *clock) read(millis int64, sent time.Time) {
	now := time.Now()
	width := now.Sub(sent)
	if last := c.last.Load(); last == nil || width < last.width || now.Sub(last.at) > keep {
		c.last.Store(&reading{millis, now, width})
	}
}

// set is read for a clock that was set meanwhile.
func (c *clock) set(millis int64, sent time.Time) {
	now := time.Now()
	c.last.Store(&reading{millis, now, now.Sub(sent)})
}

// never is when a request is too late for a node of which nothing is known yet.
const never = "9007199254740992"

// limit is what the clock shows at an instant here, or somewhat earlier.
func (c *clock) limit(at time.Time) string {
	last := c.last.Load()
	if last == nil {
		return never
	}
	return strconv.FormatInt(last.millis+at.Sub(last.at).Milliseconds(), 10)
}
