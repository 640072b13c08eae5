package mysql

import (
	"errors"
	"time"

	"github.com/simba-resp/simba-resp"
)

// line is what this server knows of a mutex that someone here waits for, follows, or
// asks for right now. The table has no queue, so this is the order in which this
// server's own waiters have their turns.
//
// Whoever may pass the mutex on does so in the gate: it is for one at a time, and
// the table is asked there. Backend.mu guards the rest and is held for no I/O. Since a
// GUARD that waits has a gate of its own, two statements at most wait for a locked row.
type mutexState struct {
	mutex    string
	lock     priorityLock
	renewals priorityLock // of GUARDs that wait for the row

	// Of the one in the gate.
	seen  row // what the table last showed
	known bool

	// Guarded by Backend.mu.
	refs          int
	subscribed    bool // someone subscribes to what happens to the mutex
	orphans       []orphan
	failures      int      // looks in a row that failed
	token         uint64   // the last token that this server knows of; 0 = none
	entries       []*entry // in order
	index         map[string]*entry
	reserved      *entry    // the polling waiter whose turn it is
	reservedUntil time.Time // when that turn ends
	leaseEnd      time.Time // of the lease that was seen last
	lastOwner     string    // who owned it last
	freedBy       string    // who gave it up last, while it is free and that is not announced; "" = nobody
	refreshAt     time.Time // when to look at the table if there is reason to; zero = not known
	timer         *time.Timer
	running       bool // the timer's goroutine runs, and sets the timer when it is done
}

// errBusy is why a request fails that could not even ask the store.
var errBusy = errors.New("too many requests for the mutex are waiting for the database")

// hold returns the line of a mutex and keeps it until drop.
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

// drop lets a line go, and sees to it that it is looked at if there is reason to.
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

// owns reports whether a contender is the owner as far as this server knows.
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
