package mysql

import (
	"sync"
	"time"
)

// clock knows how the database's clock stands to this process' monotonic one, from
// statements that read it: the reading lies between sending and answer.
//
// It serves two ends. A statement is told the instant after which it must not take
// effect any more, so that one that was delayed, on the way or for a lock, cannot do
// anything after its asker has given up. And a grant to a waiter is given its start
// beforehand, so that it is recognized even if its answer is lost. Both are
// conditions of the statement: should the database's clock have been set meanwhile,
// it does nothing, and is tried again after the clock was read anew.
type clock struct {
	epoch time.Time

	mu     sync.Mutex // guards what follows
	known  bool
	low    int64     // the database's µs at epoch, at least
	high   int64     // and at most
	readAt time.Time // when that was learned
}

// clockAge is after how long a reading gives way to a less exact one.
const clockAge = 10 * time.Second

func newClock() *clock { return &clock{epoch: time.Now()} }

// learn takes a reading of the database's clock, in whole ms, by a statement that was
// sent and answered at these times.
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

// latest returns the database's time at t in ms, or a little more.
func (c *clock) latest(t time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	us := c.high + t.Sub(c.epoch).Microseconds() + drift(time.Since(c.readAt))
	return us/1000 + 1
}

// drift is how far two clocks may come apart in a time, in µs: at most 100 ppm, as
// quartz clocks do that NTP keeps.
func drift(age time.Duration) int64 { return age.Microseconds() / 10_000 }
