package proxy

import (
	"sync/atomic"
	"time"
)

// QueueSettings are the settings of queues that CONFIG SET changes. In the zero value each is 0.
// Safe for concurrent use.
type QueueSettings struct {
	handoff, grace atomic.Int64 // nanoseconds
}

// SetHandoffWindow sets how long a free mutex is reserved for the polling waiter that was notified.
func (s *QueueSettings) SetHandoffWindow(d time.Duration) { s.handoff.Store(int64(d)) }

// SetQueueGrace sets how long a polling waiter keeps its queue entry after its last request. If the
// reply showed a lease that ends later, the time counts from the end of that lease.
func (s *QueueSettings) SetQueueGrace(d time.Duration) { s.grace.Store(int64(d)) }

// HandoffWindow returns the value of the last SetHandoffWindow.
func (s *QueueSettings) HandoffWindow() time.Duration { return time.Duration(s.handoff.Load()) }

// QueueGrace returns the value of the last SetQueueGrace.
func (s *QueueSettings) QueueGrace() time.Duration { return time.Duration(s.grace.Load()) }
