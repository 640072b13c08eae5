package proxy

import (
	"sync/atomic"
	"time"
)

// QueueSettings are the settings of queues that CONFIG SET changes. The zero value has both at 0.
// Safe for concurrent use.
type QueueSettings struct {
	handoff, grace atomic.Int64 // nanoseconds
}

// SetHandoffWindow sets for how long a free mutex is reserved for a polling waiter that was
// notified.
func (s *QueueSettings) SetHandoffWindow(d time.Duration) { s.handoff.Store(int64(d)) }

// SetQueueGrace sets for how long a polling waiter keeps its queue entry. The time counts from its
// last request, or from the end of the lease that it saw then, if that is later.
func (s *QueueSettings) SetQueueGrace(d time.Duration) { s.grace.Store(int64(d)) }

// HandoffWindow returns the value of the last SetHandoffWindow.
func (s *QueueSettings) HandoffWindow() time.Duration { return time.Duration(s.handoff.Load()) }

// QueueGrace returns the value of the last SetQueueGrace.
func (s *QueueSettings) QueueGrace() time.Duration { return time.Duration(s.grace.Load()) }
