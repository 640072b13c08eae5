package proxy

import (
	"errors"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Ticket is one blocked acquire. An engine uses it as its simba.Ticket, or embeds it in its own
// type.
type Ticket struct {
	Request simba.AcquireRequest

	waiters *Waiters
	order   uint64
	own     Lease // what an Engine granted to the ticket's own Acquire; guarded by mutexState.lock

	// Guarded by waiters.mu.
	state   ticketState
	grant   Grant
	failure error // the error that End(EndWoken) returns; nil = none

	// next is the ticket that waits in place of this one, after a grant whose lease expired too
	// soon. Only End and Abandon use the field.
	next simba.Ticket
}

type ticketState uint8

const (
	waiting ticketState = iota
	granted
	replaced // by a later ticket of its contender
	ended    // by End, Withdraw or Abandon
)

// Grant ends the wait of this ticket with a grant. It returns false if the ticket does not wait.
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
// the error. If a grant arrives before End, End returns the grant instead.
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

// Withdraw ends a ticket whose request got its reply at once, or failed. It reports whether the
// ticket still waited. If not, the ticket has been granted or replaced meanwhile.
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
	case t.failure != nil && why == simba.EndWoken: // failure is constant after finish
		return t.endFailed()
	}
	return t.keep(t.waiters.ender.Leave(t, why))
}

func (t *Ticket) endNext(why simba.EndReason) (simba.Outcome, error) {
	o, err := t.next.End(why)
	if next, ok := t.next.(interface{ successor() simba.Ticket }); ok && next.successor() != nil {
		t.next = next.successor() // so that tickets form no chain
	}
	return o, err
}

// successor returns the ticket that waits in place of this one, or nil. An engine's own ticket type
// has this method too, because it embeds a Ticket.
func (t *Ticket) successor() simba.Ticket { return t.next }

// endGranted ends a wait with a grant. If the lease expires before the client can receive it,
// endGranted makes the request again, and the wait goes on.
func (t *Ticket) endGranted(g Grant, why simba.EndReason) (simba.Outcome, error) {
	o, err := t.keep(t.waiters.ender.Granted(t, g))
	expired := o.Status == simba.StatusTimeout && t.expired(g) && o.Owner != t.Request.Contender
	late := o.Status == simba.StatusAcquired && o.Transition == 0 // expired before the reply
	if err != nil || why != simba.EndWoken || !expired && !late {
		return o, err
	}
	// If the contender has a later request that waits or polls, this request is not repeated.
	if o.Position > 0 || t.waiters.Find(t.Request.Mutex, t.Request.Contender) != nil {
		return t.keep(t.waiters.ender.Replaced(t))
	}
	o, t.next, err = t.waiters.ender.Reacquire(t)
	return t.keep(o, err)
}

// endFailed ends a wait with the error of Fail, unless the store has granted the mutex before the
// queue entry is removed.
func (t *Ticket) endFailed() (simba.Outcome, error) {
	o, err := t.keep(t.waiters.ender.Leave(t, simba.EndLeft))
	switch {
	case err == nil && o.Status == simba.StatusAcquired, errors.Is(err, simba.ErrStopped):
		return o, err
	}
	return simba.Outcome{}, t.failure
}

// expired reports whether the tenure of g, which has ended, expired. Otherwise it ended by a
// release or a break. A store that counts whole milliseconds may end a lease almost one millisecond
// early.
func (t *Ticket) expired(g Grant) bool {
	lease := t.Request.TTL + t.Request.Transition
	if g.Lease != nil {
		lease = g.Lease.TTL + g.Lease.Transition
	}
	return g.Ended || g.Token != 0 && time.Since(g.Since)+time.Millisecond >= lease
}

// keep stores the tenure of an outcome for Abandon, and returns its arguments.
func (t *Ticket) keep(o simba.Outcome, err error) (simba.Outcome, error) {
	if err == nil && o.Status == simba.StatusAcquired {
		t.waiters.mu.Lock()
		t.state = granted
		if t.grant.Token != o.Token {
			t.grant = Grant{Token: o.Token}
		}
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
