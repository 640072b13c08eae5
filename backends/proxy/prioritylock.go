package proxy

import "context"

// priorityLock is a lock of this process. Calls for the contender that owns the mutex get the lock
// before other calls do. Otherwise the order of the calls counts, since the receivers of a channel
// form a queue.
type priorityLock struct {
	free  chan struct{} // capacity 1; has an element while the lock is free
	owner chan struct{} // passes the lock on to a call for the owner
}

func newPriorityLock() priorityLock {
	l := priorityLock{free: make(chan struct{}, 1), owner: make(chan struct{})}
	l.unlock()
	return l
}

// lock waits for the lock. It returns errBusy if the context ends first.
func (l priorityLock) lock(ctx context.Context, owner bool) error {
	var first chan struct{}
	if owner {
		first = l.owner
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
	case l.owner <- struct{}{}:
	default:
		l.free <- struct{}{}
	}
}
