package proxy

import (
	"sync/atomic"
	"time"
)

// QueueSettings are the settings of a queue that CONFIG SET changes. The zero QueueSettings are
// zero. Safe for concurrent use.
type QueueSettings struct {
	handoff, grace atomic.Int64 // nanoseconds
}

// SetHandoffWindow sets for how long a free mutex is kept for a polling waiter that
// was told of its turn.
func (w *QueueSettings) SetHandoffWindow(d time.Duration) { w.handoff.Store(int64(d)) }

// SetQueueGrace sets for how long a polling waiter keeps its place after the end of
// the lease that it last saw, or after its last request.
func (w *QueueSettings) SetQueueGrace(d time.Duration) { w.grace.Store(int64(d)) }

// HandoffWindow returns what SetHandoffWindow set.
func (w *QueueSettings) HandoffWindow() time.Duration { return time.Duration(w.handoff.Load()) }

// QueueGrace returns what SetQueueGrace set.
func (w *QueueSettings) QueueGrace() time.Duration { return time.Duration(w.grace.Load()) }
