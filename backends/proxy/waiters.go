package proxy

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Waiters has a Ticket for each blocked acquire of this server. It holds no lock while it calls its
// WaitEnder or wakes a waiter. Safe for concurrent use.
type Waiters struct {
	ender WaitEnder

	mu        sync.Mutex                    // guards the fields below and parts of each Ticket
	mutexes   map[string]map[string]*Ticket // by mutex, then by contender
	lastOrder uint64                        // order of the newest Ticket
}

// WaitEnder has the methods of an engine that a Ticket calls when its wait ends. A method may wait
// for the store, up to the engine's timeout.
type WaitEnder interface {
	// Granted returns the outcome of a wait that ended with g. Normally the status is
	// StatusAcquired, with the remaining time of the windows; 0 = the lease has just expired. If
	// the tenure of g has ended, the status is StatusTimeout. If the contender now waits by another
	// request, the status is StatusQueued. If the store has granted the ticket a later tenure, the
	// outcome shows that later tenure.
	Granted(t *Ticket, g Grant) (simba.Outcome, error)
	// Reacquire makes the request of t again.
	Reacquire(t *Ticket) (simba.Outcome, simba.Ticket, error)
	// Replaced returns the outcome of a wait whose queue entry now belongs to another request of
	// its contender. Its status is StatusQueued, or the present status of that other request.
	Replaced(t *Ticket) (simba.Outcome, error)
	// Leave ends a wait for which this server knows of no grant. It removes the queue entry. If why
	// is EndGone, it keeps the entry instead, as that of a polling waiter. The store may have
	// granted the mutex to the waiter meanwhile. Then Leave returns StatusAcquired or, if why is
	// EndGone, hands the mutex off.
	Leave(t *Ticket, why simba.EndReason) (simba.Outcome, error)
	// HandOff hands the mutex off from a waiter that did not receive its grant. It does nothing if
	// the contender has renewed the tenure of g.
	HandOff(t *Ticket, g Grant) error
}

// Grant ends a wait. Usually it is a tenure that the store gave to the waiter. If Token is 0, it
// names no tenure, and WaitEnder.Granted finds the outcome.
type Grant struct {
	Token uint64
	// Since is when the windows began, or earlier. Engines use it if they compute the remaining
	// windows on this server's clock.
	Since time.Time
	Ended bool // the waiter's tenure has expired; Token may be 0

	// Lease is the lease of the tenure. Only an Engine uses this field. The lease has no Mark if the
	// contender has it by another request.
	Lease *Lease
	// Ticket names the ticket to which the store granted the tenure, if the store knows tickets.
	// The contender may now wait by a later ticket, which has other windows. Only the engine reads
	// this field.
	Ticket string
	// Confirm requires that the engine asks the store for the remaining windows. Only the engine
	// reads this field.
	Confirm bool
}

// NewWaiters returns empty Waiters.
func NewWaiters(e WaitEnder) *Waiters {
	return &Waiters{ender: e, mutexes: make(map[string]map[string]*Ticket)}
}

// Enter makes a ticket for a request that has a Waiter. The engine calls it before it sends the
// request, since a grant may arrive before the store's reply. If the contender waits already, the
// new ticket replaces the earlier one, and Enter wakes the earlier waiter.
func (w *Waiters) Enter(r simba.AcquireRequest) *Ticket {
	t, _ := w.Replace(r)
	return t
}

// Replace is Enter, but also returns the ticket that the new one replaces; nil = none.
func (w *Waiters) Replace(r simba.AcquireRequest) (t, old *Ticket) {
	w.mu.Lock()
	w.lastOrder++
	t = &Ticket{Request: r, waiters: w, order: w.lastOrder}
	m := w.mutexes[r.Mutex]
	if m == nil {
		m = make(map[string]*Ticket)
		w.mutexes[r.Mutex] = m
	}
	if old = m[r.Contender]; old != nil {
		old.state = replaced
		t.order = old.order
	}
	m[r.Contender] = t
	w.mu.Unlock()
	if old != nil {
		old.Request.Waiter.Wake()
	}
	return t, old
}

// Grant ends the wait of a contender with a grant. It returns false if the contender does not wait.
func (w *Waiters) Grant(mutex, contender string, g Grant) bool {
	for t := w.Find(mutex, contender); t != nil; t = w.Find(mutex, contender) {
		if t.Grant(g) {
			return true
		}
	}
	return false
}

// Fail ends all waits for a mutex with an error that only an operator can resolve.
func (w *Waiters) Fail(mutex string, err error) {
	for _, t := range w.Waiting(mutex) {
		t.Fail(err)
	}
}

// FailAll ends all waits with an error that only an operator can resolve.
func (w *Waiters) FailAll(err error) {
	for _, mutex := range w.Mutexes() {
		w.Fail(mutex, err)
	}
}

// Waiting returns the tickets that wait for a mutex, in the order in which they entered.
func (w *Waiters) Waiting(mutex string) []*Ticket {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.mutexes[mutex]
	if len(m) == 0 {
		return nil
	}
	list := make([]*Ticket, 0, len(m))
	for _, t := range m {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *Ticket) int { return int(a.order) - int(b.order) })
	return list
}

// Find returns the ticket by which a contender waits, or nil.
func (w *Waiters) Find(mutex, contender string) *Ticket {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mutexes[mutex][contender]
}

// Count returns how many contenders wait for a mutex.
func (w *Waiters) Count(mutex string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.mutexes[mutex])
}

// Mutexes returns the mutexes that have a ticket.
func (w *Waiters) Mutexes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.mutexes))
}

// Len returns how many tickets wait, for all mutexes.
func (w *Waiters) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, m := range w.mutexes {
		n += len(m)
	}
	return n
}

func (w *Waiters) removeLocked(t *Ticket) {
	m := w.mutexes[t.Request.Mutex]
	if m[t.Request.Contender] != t {
		return // replaced
	}
	delete(m, t.Request.Contender)
	if len(m) == 0 {
		delete(w.mutexes, t.Request.Mutex)
	}
}
