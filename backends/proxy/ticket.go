package proxy

import (
	"errors"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Ticket is one blocked acquire. It is the simba.Ticket of its engine, or embedded in it.
type Ticket struct {
	Request simba.AcquireRequest

	waiters *Waiters
	order   uint64

	// Guarded by waiters.mu.
	state   ticketState
	grant   Grant
	failure error // what End(EndWoken) returns; nil = the wait goes on

	// next waits in place of this ticket, after a grant that expired too soon. Only End and Abandon
	// use it.
	next simba.Ticket
}

// ticketState is the state of a Ticket.
type ticketState uint8

const (
	waiting ticketState = iota
	granted
	replaced // by a later ticket of its contender
	ended    // or withdrawn
)

// Grant ends the wait of this ticket with a grant. It reports false if the ticket does not wait.
func (t *Ticket) Grant(g Grant) bool {
	w := t.waiters
	w.mu.Lock()
	was := t.state
	if was == waiting {
		t.state, t.grant = granted, g
		w.removeLocked(t)
	}
	w.mu.Unlock()
	if was != waiting {
		return false
	}
	t.Request.Waiter.Wake()
	return true
}

// Fail ends the wait of this ticket with an error. It wakes the waiter, and End(EndWoken) returns
// the error. Until End the ticket still waits. So a grant that arrives before End wins.
func (t *Ticket) Fail(err error) {
	w := t.waiters
	w.mu.Lock()
	fails := t.state == waiting && t.failure == nil
	if fails {
		t.failure = err
	}
	w.mu.Unlock()
	if fails {
		t.Request.Waiter.Wake()
	}
}

// Withdraw ends a ticket whose request was answered at once, or failed. It reports whether the
// ticket still waited. If not, it was granted or replaced meanwhile.
func (t *Ticket) Withdraw() bool {
	state, _ := t.finish()
	return state == waiting
}

// finish ends the ticket, and returns the state and the grant that it had.
func (t *Ticket) finish() (ticketState, Grant) {
	w := t.waiters
	w.mu.Lock()
	defer w.mu.Unlock()
	state := t.state
	if state == waiting {
		w.removeLocked(t)
		t.state = ended
	}
	return state, t.grant
}

// End implements simba.Ticket.
func (t *Ticket) End(why simba.EndReason) (simba.Outcome, error) {
	if t.next != nil {
		return t.endNext(why)
	}
	state, g := t.finish()
	switch {
	case state == granted && why == simba.EndGone:
		return simba.Outcome{Status: simba.StatusTimeout}, t.waiters.ender.HandOff(t, g)
	case state == granted:
		return t.endGranted(g, why)
	case state == replaced:
		return t.keep(t.waiters.ender.Replaced(t))
	case t.failure != nil && why == simba.EndWoken: // safe to read: it does not change after finish
		return t.endFailed()
	}
	return t.keep(t.waiters.ender.Leave(t, why))
}

// endNext ends the ticket that waits in place of this one.
func (t *Ticket) endNext(why simba.EndReason) (simba.Outcome, error) {
	o, err := t.next.End(why)
	if next, ok := t.next.(interface{ successor() simba.Ticket }); ok && next.successor() != nil {
		t.next = next.successor() // so that tickets form no chain
	}
	return o, err
}

// successor returns the ticket that waits in place of this one, nil if there is none. An engine's
// own ticket type embeds a Ticket, and so has this method too.
func (t *Ticket) successor() simba.Ticket { return t.next }

// endGranted ends a wait with a grant. If the lease expires before the client can receive the
// outcome, the wait goes on: endGranted makes the request once more.
func (t *Ticket) endGranted(g Grant, why simba.EndReason) (simba.Outcome, error) {
	o, err := t.keep(t.waiters.ender.Granted(t, g))
	expired := o.Status == simba.StatusTimeout && t.expired(g) && o.Owner != t.Request.Contender
	late := o.Status == simba.StatusAcquired && o.Transition == 0 // expired before the reply
	if err != nil || why != simba.EndWoken || !expired && !late {
		return o, err
	}
	// The contender may wait by a later request, or poll.
	if o.Position > 0 || t.waiters.Find(t.Request.Mutex, t.Request.Contender) != nil {
		return t.keep(t.waiters.ender.Replaced(t))
	}
	o, t.next, err = t.waiters.ender.Reacquire(t)
	return t.keep(o, err)
}

// endFailed ends a wait with the error of Fail, unless the store grants the mutex before the queue
// entry is removed.
func (t *Ticket) endFailed() (simba.Outcome, error) {
	o, err := t.keep(t.waiters.ender.Leave(t, simba.EndLeft))
	switch {
	case err == nil && o.Status == simba.StatusAcquired, errors.Is(err, simba.ErrStopped):
		return o, err
	}
	return simba.Outcome{}, t.failure
}

// expired reports whether a tenure ended by expiry. Otherwise another request of the contender has
// released the mutex, or the tenure was broken. A store that counts whole milliseconds may end a
// lease almost one millisecond early.
func (t *Ticket) expired(g Grant) bool {
	return g.Ended || g.Token != 0 && time.Since(g.Since)+time.Millisecond >= t.Request.TTL+t.Request.Transition
}

// keep notes the tenure of an outcome for Abandon, and returns its arguments.
func (t *Ticket) keep(o simba.Outcome, err error) (simba.Outcome, error) {
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
	if state, g := t.finish(); state == granted {
		return 0, t.waiters.ender.HandOff(t, g)
	}
	return 0, nil
}
