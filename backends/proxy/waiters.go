package proxy

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Waiters is who waits on this server in a blocked acquire. Safe for concurrent use.
//
// It calls its Store, and wakes waiters, under no lock of its own.
type Waiters struct {
	store Store

	mu      sync.Mutex
	mutexes map[string]map[string]*Ticket // by mutex, then by contender
	order   uint64                        // of the last that entered
}

// Store is what Waiters ask of the engine that it belongs to when a wait ends. Its
// methods may wait for the store, as long as the engine's deadline allows.
type Store interface {
	// Granted returns the outcome of a wait that ended with g: StatusAcquired with
	// what is left of the windows now (maybe nothing), or what has become of it since: StatusTimeout if
	// that is over. If the store has granted the ticket a later tenure, that is the outcome.
	Granted(t *Ticket, g Grant) (simba.Outcome, error)
	// Reacquire asks once more for what t asked for.
	Reacquire(t *Ticket) (simba.Outcome, simba.Ticket, error)
	// Replaced returns the outcome, StatusQueued or what has become of it, of a waiter
	// whose place another connection of its contender took over.
	Replaced(t *Ticket) (simba.Outcome, error)
	// Leave ends the place in the queue of a waiter that was not granted the mutex
	// as far as this server knows, or makes it one of a polling waiter (EndGone). If
	// the store granted it in the meantime, then for EndGone it is passed on, and for
	// any other reason the outcome is StatusAcquired.
	Leave(t *Ticket, why simba.EndReason) (simba.Outcome, error)
	// HandOff gives a tenure up that its waiter could not be told of, unless the
	// contender has renewed it since.
	HandOff(t *Ticket, g Grant) error
}

// Grant is a tenure that the store gave to a waiter.
type Grant struct {
	Token uint64
	Since time.Time // not later than the windows began; for an engine that counts them here
	Over  bool      // it had a tenure of which no more is known than that it is over

	// Ticket names the ticket that the store granted it to, for an engine whose store
	// knows tickets: the contender may wait by another one by now, which asked for
	// other windows. Waiters does not look at it.
	Ticket string
	// Confirm says that the engine has yet to read from the store what is left of
	// the windows. Waiters does not look at it.
	Confirm bool
}

// Ticket is the place of one blocked acquire. It is the simba.Ticket of its engine.
type Ticket struct {
	Request simba.AcquireRequest

	waiters *Waiters
	order   uint64

	// Guarded by waiters.mu.
	state   ticketState
	grant   Grant
	failure error // why the wait is to end, if it still waits; nil = it goes on

	next simba.Ticket // waits in its stead, after a grant that was over too soon; only End and Abandon look
}

type ticketState uint8

const (
	waiting ticketState = iota
	granted
	moved
	ended // or withdrawn
)

// NewWaiters returns empty Waiters.
func NewWaiters(s Store) *Waiters {
	return &Waiters{store: s, mutexes: make(map[string]map[string]*Ticket)}
}

// Enter makes a ticket of a request that has a Waiter. It is entered before the
// store is asked, since the store may grant it before its answer arrives. A waiter
// of the same contender that is there already makes place: it is moved, and woken.
func (l *Waiters) Enter(r simba.AcquireRequest) *Ticket {
	l.mu.Lock()
	l.order++
	t := &Ticket{Request: r, waiters: l, order: l.order}
	m := l.mutexes[r.Mutex]
	if m == nil {
		m = make(map[string]*Ticket)
		l.mutexes[r.Mutex] = m
	}
	old := m[r.Contender]
	if old != nil {
		old.state = moved
		t.order = old.order
	}
	m[r.Contender] = t
	l.mu.Unlock()
	if old != nil {
		old.Request.Waiter.Wake()
	}
	return t
}

// Withdraw takes back a ticket whose request was answered at once, and reports
// whether it still waited: if not, it was granted, or moved, in the meantime.
func (t *Ticket) Withdraw() bool {
	state, _ := t.settle()
	return state == waiting
}

// Grant tells the waiter of a contender that it owns the mutex. It reports false if
// nobody waits: then whoever asked for the grant is gone.
func (l *Waiters) Grant(mutex, contender string, g Grant) bool {
	for t := l.Find(mutex, contender); t != nil; t = l.Find(mutex, contender) {
		if t.Grant(g) {
			return true
		}
	}
	return false
}

// Grant is Waiters.Grant for this ticket. It reports false if that does not wait any more.
func (t *Ticket) Grant(g Grant) bool {
	l := t.waiters
	l.mu.Lock()
	was := t.state
	if was == waiting {
		t.state, t.grant = granted, g
		l.removeLocked(t)
	}
	l.mu.Unlock()
	if was != waiting {
		return false
	}
	t.Request.Waiter.Wake()
	return true
}

// Fail ends the waits for a mutex by an error that does not pass by itself.
func (l *Waiters) Fail(mutex string, err error) {
	for _, t := range l.Waiting(mutex) {
		t.Fail(err)
	}
}

// Fail is Waiters.Fail for this ticket. It wakes the waiter, and End(EndWoken) returns the
// error. Until End is called the ticket waits like any other, so a grant that comes first
// wins.
func (t *Ticket) Fail(err error) {
	l := t.waiters
	l.mu.Lock()
	fails := t.state == waiting && t.failure == nil
	if fails {
		t.failure = err
	}
	l.mu.Unlock()
	if fails {
		t.Request.Waiter.Wake()
	}
}

// Waiting returns the tickets of a mutex in the order in which they entered.
func (l *Waiters) Waiting(mutex string) []*Ticket {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.mutexes[mutex]
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

// Find returns the ticket of a contender that waits, nil if there is none.
func (l *Waiters) Find(mutex, contender string) *Ticket {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mutexes[mutex][contender]
}

// Count returns how many wait for a mutex.
func (l *Waiters) Count(mutex string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mutexes[mutex])
}

// Mutexes returns the mutexes that someone waits for.
func (l *Waiters) Mutexes() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := make([]string, 0, len(l.mutexes))
	for name := range l.mutexes {
		names = append(names, name)
	}
	return names
}

// Len returns how many wait in all.
func (l *Waiters) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, m := range l.mutexes {
		n += len(m)
	}
	return n
}

func (l *Waiters) removeLocked(t *Ticket) {
	m := l.mutexes[t.Request.Mutex]
	if m[t.Request.Contender] != t {
		return // moved
	}
	delete(m, t.Request.Contender)
	if len(m) == 0 {
		delete(l.mutexes, t.Request.Mutex)
	}
}

// successor returns what waits in the ticket's stead, nil if nothing does. A store's own tickets have it of the one that they embed.
func (t *Ticket) successor() simba.Ticket { return t.next }

// failed ends the wait of a ticket that Fail has woken. What the store grants all the same
// before the place is left is the outcome.
func (t *Ticket) failed() (simba.Outcome, error) {
	o, err := t.found(t.waiters.store.Leave(t, simba.EndLeft))
	switch {
	case err == nil && o.Status == simba.StatusAcquired, errors.Is(err, simba.ErrStopped):
		return o, err
	}
	return simba.Outcome{}, t.failure
}

// settle ends the ticket and returns what had come of it.
func (t *Ticket) settle() (ticketState, Grant) {
	l := t.waiters
	l.mu.Lock()
	defer l.mu.Unlock()
	state := t.state
	if state == waiting {
		l.removeLocked(t)
		t.state = ended
	}
	return state, t.grant
}

// End implements simba.Ticket.
func (t *Ticket) End(why simba.EndReason) (simba.Outcome, error) {
	if t.next != nil {
		o, err := t.next.End(why)
		if next, ok := t.next.(interface{ successor() simba.Ticket }); ok && next.successor() != nil {
			t.next = next.successor() // so there is no chain of those who came before
		}
		return o, err
	}
	state, g := t.settle()
	switch {
	case state == granted && why == simba.EndGone:
		return simba.Outcome{Status: simba.StatusTimeout}, t.waiters.store.HandOff(t, g)
	case state == granted:
		o, err := t.found(t.waiters.store.Granted(t, g))
		over := o.Status == simba.StatusTimeout && t.ranOut(g) && o.Owner != t.Request.Contender
		late := o.Status == simba.StatusAcquired && o.Transition == 0 // the store's answer took what was left
		if err != nil || why != simba.EndWoken || !over && !late {
			return o, err
		}
		// Its contender may wait by a later connection, or poll.
		if o.Position > 0 || t.waiters.Find(t.Request.Mutex, t.Request.Contender) != nil {
			return t.found(t.waiters.store.Replaced(t))
		}
		o, t.next, err = t.waiters.store.Reacquire(t)
		return t.found(o, err)
	case state == moved:
		return t.found(t.waiters.store.Replaced(t))
	case t.failure != nil && why == simba.EndWoken: // it changes no more, since the ticket has ended
		return t.failed()
	}
	return t.found(t.waiters.store.Leave(t, why))
}

// ranOut reports whether a tenure has ended by itself. If not, its contender has given it up elsewhere, or it
// was broken. A store that counts in whole milliseconds may have ended it almost one early.
func (t *Ticket) ranOut(g Grant) bool {
	return g.Over || g.Token != 0 && time.Since(g.Since)+time.Millisecond >= t.Request.TTL+t.Request.Transition
}

// found notes a grant that only the store knew of, for Abandon.
func (t *Ticket) found(o simba.Outcome, err error) (simba.Outcome, error) {
	if err == nil && o.Status == simba.StatusAcquired {
		t.waiters.mu.Lock()
		t.state, t.grant = granted, Grant{Token: o.Token}
		t.waiters.mu.Unlock()
	}
	return o, err
}

// Abandon implements simba.Ticket.
func (t *Ticket) Abandon() (simba.Seq, error) {
	if t.next != nil {
		return t.next.Abandon()
	}
	if state, g := t.settle(); state == granted {
		return 0, t.waiters.store.HandOff(t, g)
	}
	return 0, nil
}
