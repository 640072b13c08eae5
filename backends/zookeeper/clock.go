package zookeeper

import (
	"sync/atomic"
	"time"
)

// storeClock estimates the clock of the ensemble's leader. No lease depends on it: it may step. But what
// is told of the end of a lease that another server keeps does.
//
// An exchange with the leader says within what bounds its clock was ahead of ours: the longer it took, the
// wider they are. One that the ensemble answered late, since it was away meanwhile, says next to nothing, so
// bounds are only made closer; unless they are contradicted, when the leader's clock was set, or
// there is a new leader.
type storeClock struct {
	known atomic.Pointer[bounds] // nil = nothing yet: our own wall clock is as good
}

// bounds are the least and the most that the leader's clock is ahead of ours, in nanoseconds.
type bounds struct{ least, most int64 }

// observe takes the leader's clock, Unix milliseconds, of an exchange between two instants.
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

// at returns the leader's clock at an instant of ours, Unix milliseconds.
func (c *storeClock) at(t time.Time) int64 {
	at := wall(t)
	if k := c.known.Load(); k != nil {
		at += k.least + (k.most-k.least)/2
	}
	return at / int64(time.Millisecond)
}

// latest returns the latest instant of ours at which the leader's clock may have shown that: who counts
// a lease from it does not tell its owner that it is over before it is.
func (c *storeClock) latest(ms int64) time.Time {
	at := (ms + 1) * int64(time.Millisecond)
	if k := c.known.Load(); k != nil {
		at -= k.least
	}
	return epoch.Add(time.Duration(at - baseWall))
}

// wall is our wall clock as it was at the epoch, gone on with the monotonic one.
func wall(t time.Time) int64 { return baseWall + int64(t.Sub(epoch)) }

var baseWall = epoch.UnixNano()
