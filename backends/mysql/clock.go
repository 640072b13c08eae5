package mysql

import (
	"sync"
	"time"
)

// clock estimates the database's clock from this process' monotonic clock. Each statement that
// reads the database's clock bounds the estimate: the database took the reading between sending and
// answer.
//
// The engine computes two times from the estimate: the deadline of each UPDATE, and the start of
// the lease that it grants to a waiter. The UPDATE compares both with the database's clock. If that
// clock was set in between, the UPDATE matches no row, and the server tries again with a new
// reading.
type clock struct {
	epoch time.Time

	mu     sync.Mutex // guards the fields below
	known  bool
	low    int64     // lower bound of the database's time at epoch, in µs
	high   int64     // upper bound of that time
	readAt time.Time // when the bounds were set
}

// clockAge is the age of the bounds after which a less exact reading may replace them.
const clockAge = 10 * time.Second

func newClock() *clock { return &clock{epoch: time.Now()} }

// learn adds a reading of the database's clock, in whole ms. The caller took the time sent before
// it sent the statement, and the time answered after the answer arrived.
func (c *clock) learn(reading int64, sent, answered time.Time) {
	low := reading*1000 - answered.Sub(c.epoch).Microseconds() - 1
	high := (reading+1)*1000 - sent.Sub(c.epoch).Microseconds()
	c.mu.Lock()
	defer c.mu.Unlock()
	age := answered.Sub(c.readAt)
	apart := low > c.high+drift(age) || high < c.low-drift(age)
	if !c.known || apart || high-low <= c.high-c.low || age > clockAge {
		c.known, c.low, c.high, c.readAt = true, low, high, answered
	}
}

// latest returns an upper bound of the database's time at t, in ms.
func (c *clock) latest(t time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	us := c.high + t.Sub(c.epoch).Microseconds() + drift(time.Since(c.readAt))
	return us/1000 + 1
}

// drift returns by how many µs two clocks may diverge within the duration age. It assumes at most
// 100 ppm, which quartz clocks under NTP keep.
func drift(age time.Duration) int64 { return age.Microseconds() / 10_000 }
