package mysql

import (
	"errors"
	"time"

	"github.com/simba-resp/simba-resp"
)

// mutexState is what this server knows of a mutex while a client here waits for it, subscribes to
// it or has a request for it. It has the queue of this server's waiters.
//
// Only the goroutine that holds the field lock hands off the mutex, or reads the row for a handoff.
// A GUARD that waits for a locked row takes the lock renewals instead. So at most two statements
// wait for the row at a time.
type mutexState struct {
	mutex    string
	lock     priorityLock
	renewals priorityLock // held by a GUARD that waits for the row

	// Guarded by lock.
	seen  row  // the row as last read or written
	known bool // seen is set

	// Guarded by Backend.mu.
	refs          int
	subscribed    bool // a client subscribes to the mutex's channels
	orphans       []orphan
	failures      int      // failed refreshes in a row
	token         uint64   // the last known token; 0 = none
	entries       []*entry // the queue, in order
	index         map[string]*entry
	reserved      *entry // the polling waiter that the mutex is reserved for
	reservedUntil time.Time
	leaseEnd      time.Time // of the last known lease
	lastOwner     string
	freedBy       string    // the owner whose release is not announced yet; "" = none
	refreshAt     time.Time // when to read the row if anybody needs it; zero = not set
	timer         *time.Timer
	running       bool // runDue is running, and will set the timer
}

// errBusy is returned when a request could not get the mutex's lock before its deadline.
var errBusy = errors.New("too many requests for the mutex are waiting for the database")

// ref returns the state of a mutex and keeps it until unref.
func (b *Backend) ref(mutex string) *mutexState {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.mutexes[mutex]
	if m == nil {
		m = &mutexState{mutex: mutex}
		b.mutexes[mutex] = m
	}
	m.refs++
	return m
}

// unref ends the effect of one ref. It sets the timer, and deletes a state that is not needed.
func (b *Backend) unref(m *mutexState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.refs--
	b.armLocked(m)
	if m.refs == 0 && len(m.entries) == 0 && !m.subscribed && len(m.orphans) == 0 && m.reserved == nil {
		m.disarm()
		delete(b.mutexes, m.mutex)
	}
}

// owns reports whether a contender owns the mutex, as far as this server knows.
func (b *Backend) owns(m *mutexState, contender string) bool {
	b.mu.Lock()
	last, end := m.lastOwner, m.leaseEnd
	b.mu.Unlock()
	if last != "" {
		return last == contender && time.Now().Before(end)
	}
	e, ok := b.eventLog.Last(m.mutex)
	return ok && e.Kind == simba.EventAcquired && e.Owner == contender
}
