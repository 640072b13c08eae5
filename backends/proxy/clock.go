package proxy

import (
	"sync"
	"time"
)

// Clock estimates a store's clock from this process' monotonic clock. Each step that reads the
// store's clock bounds the estimate: the store took the reading between sending and answer. Safe
// for concurrent use.
//
// A store computes the deadline of each step from the estimate, which the store compares with its
// own clock. So if that clock is set, a step can fail without effect, but no lease moves.
type Clock struct {
	epoch time.Time

	mu     sync.Mutex // guards the fields below
	known  bool
	low    int64     // lower bound of the store's time at epoch, in µs
	high   int64     // upper bound of that time
	readAt time.Time // when the bounds were set
}

// clockAge is the age of the bounds after which a less exact reading may replace them.
const clockAge = 10 * time.Second

// NewClock returns a Clock without a reading.
func NewClock() *Clock { return &Clock{epoch: time.Now()} }

// Learn adds a reading of the store's clock, in whole ms. The caller took the time sent before
// it sent the statement, and the time answered after the answer arrived.
func (c *Clock) Learn(reading int64, sent, answered time.Time) {
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

// Latest returns an upper bound of the store's time at t, in ms.
func (c *Clock) Latest(t time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	us := c.high + t.Sub(c.epoch).Microseconds() + drift(time.Since(c.readAt))
	return us/1000 + 1
}

// Earliest returns a lower bound of the store's time at t, in ms. ok is false without a reading.
func (c *Clock) Earliest(t time.Time) (ms int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return (c.low + t.Sub(c.epoch).Microseconds() - drift(time.Since(c.readAt))) / 1000, c.known
}

// drift returns by how many µs two clocks may diverge within the duration age. It assumes at most
// 100 ppm, which quartz clocks under NTP keep.
func drift(age time.Duration) int64 { return age.Microseconds() / 10_000 }
