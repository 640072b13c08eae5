package proxy

import "context"

// priorityLock is a lock of this process. Urgent calls get the lock before other calls do: those for
// the contender that owns the mutex, and those that serve the next waiter of a Queue. Otherwise the
// order of the calls counts, since the receivers of a channel form a queue.
type priorityLock struct {
	free   chan struct{} // capacity 1; has an element while the lock is free
	urgent chan struct{} // passes the lock on to an urgent call
}

func newPriorityLock() priorityLock {
	l := priorityLock{free: make(chan struct{}, 1), urgent: make(chan struct{})}
	l.unlock()
	return l
}

// lock waits for the lock. It returns errBusy if the context ends first.
func (l priorityLock) lock(ctx context.Context, urgent bool) error {
	var first chan struct{}
	if urgent {
		first = l.urgent
	}
	select {
	case <-l.free:
	case <-first:
	case <-ctx.Done():
		return errBusy
	}
	return nil
}

func (l priorityLock) unlock() {
	select {
	case l.urgent <- struct{}{}:
	default:
		l.free <- struct{}{}
	}
}
