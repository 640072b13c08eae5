// Package suspend measures how long the machine was suspended.
package suspend

import (
	"sync/atomic"
	"time"
)

// pretended is the time that Pretend has added, in nanoseconds.
var pretended atomic.Int64

// Time returns how long the machine was suspended since it booted. Go's monotonic clock stands
// still during a suspension, but the server's clock may run on.
func Time() time.Duration { return measured() + time.Duration(pretended.Load()) }

// Pretend adds d to the results of Time until undo is called. Tests use it, because they cannot
// suspend the machine.
func Pretend(d time.Duration) (undo func()) {
	pretended.Add(int64(d))
	return func() { pretended.Add(-int64(d)) }
}
