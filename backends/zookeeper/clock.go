package zookeeper

import (
	"sync/atomic"
	"time"
)

// storeClock estimates the clock of the ensemble's leader. No lease depends on it, since it may
// step. The engine uses it to report the end of a lease that another server measures.
//
// Each exchange with the leader gives bounds of how far the leader's clock is ahead of this
// server's. The estimate is the intersection of all bounds. If new bounds do not intersect it, the
// leader's clock was set, or there is a new leader. Then the estimate starts again with the new
// bounds.
type storeClock struct {
	known atomic.Pointer[bounds] // nil = unknown: the local wall clock is used
}

// bounds are the least and the most that the leader's clock is ahead of this server's, in ns.
type bounds struct{ least, most int64 }

// observe takes the leader's clock (ms, in Unix milliseconds), and the start and end of the
// exchange.
func (c *storeClock) observe(ms int64, start, end time.Time) {
	earliest := ms * int64(time.Millisecond)
	seen := bounds{earliest - wall(end), earliest + int64(time.Millisecond) - wall(start)}
	for {
		old := c.known.Load()
		next := seen
		if old != nil && max(old.least, seen.least) <= min(old.most, seen.most) {
			next = bounds{max(old.least, seen.least), min(old.most, seen.most)}
		}
		if c.known.CompareAndSwap(old, &next) {
			return
		}
	}
}

// at returns the leader's clock at t, in Unix milliseconds.
func (c *storeClock) at(t time.Time) int64 {
	at := wall(t)
	if k := c.known.Load(); k != nil {
		at += k.least + (k.most-k.least)/2
	}
	return at / int64(time.Millisecond)
}

// latest returns the latest local time at which the leader's clock may have shown ms. If a server
// counts the windows of a lease from then, it never reports the end too early.
func (c *storeClock) latest(ms int64) time.Time {
	at := (ms + 1) * int64(time.Millisecond)
	if k := c.known.Load(); k != nil {
		at -= k.least
	}
	return epoch.Add(time.Duration(at - baseWall))
}

// wall returns the wall clock at t: the wall clock at epoch, advanced by the monotonic clock.
func wall(t time.Time) int64 { return baseWall + int64(t.Sub(epoch)) }

var baseWall = epoch.UnixNano()
