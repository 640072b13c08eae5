package redis

import (
	"strconv"
	"sync/atomic"
	"time"
)

// clock estimates what a node's clock shows, from the node's replies. Safe for concurrent use.
type clock struct{ last atomic.Pointer[reading] }

// reading is one reading of the node's clock. At some instant between at-uncertainty and at, the
// clock showed millis.
type reading struct {
	millis      int64
	at          time.Time // on this server's clock
	uncertainty time.Duration
}

// maxReadingAge is how long a reading is preferred to later ones that are less exact. In that time
// two clocks drift apart by a few milliseconds at most.
const maxReadingAge = 10 * time.Second

// update notes what the node's clock showed between sent and now.
func (c *clock) update(millis int64, sent time.Time) {
	now := time.Now()
	uncertainty := now.Sub(sent)
	if last := c.last.Load(); last == nil || uncertainty < last.uncertainty || now.Sub(last.at) > maxReadingAge {
		c.last.Store(&reading{millis, now, uncertainty})
	}
}

// replace notes what the node's clock showed between sent and now, after somebody has set that
// clock. It drops the earlier reading, even if the earlier one was more exact.
func (c *clock) replace(millis int64, sent time.Time) {
	now := time.Now()
	c.last.Store(&reading{millis, now, now.Sub(sent)})
}

// noDeadline is the deadline of a script at a node whose clock is not known yet.
const noDeadline = "9007199254740992"

// atNode returns what the node's clock will show at an instant of this server's clock. The result
// may be somewhat too early. If somebody sets the node's clock back, the results are too late until
// update stores a new reading. While requests run, that takes little more than maxReadingAge.
func (c *clock) atNode(at time.Time) string {
	last := c.last.Load()
	if last == nil {
		return noDeadline
	}
	return strconv.FormatInt(last.millis+at.Sub(last.at).Milliseconds(), 10)
}
