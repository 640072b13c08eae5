package redis

import (
	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// waitTicket is the simba.Ticket of a waiter. A grant may arrive after another grant has ended the
// wait, or while End asks Redis for the outcome. The Backend keeps such a late grant until End
// returns.
type waitTicket struct {
	*proxy.Ticket
	b *Backend
}

// End implements simba.Ticket.
func (t waitTicket) End(why simba.EndReason) (simba.Outcome, error) {
	b, id := t.b, waitOf(t.Ticket).ticket
	b.expectLateGrants(id)
	o, err := t.Ticket.End(why)
	acquired := err == nil && o.Status == simba.StatusAcquired
	b.mu.Lock()
	late := b.lateGrants[id]
	delete(b.lateGrants, id)
	if acquired {
		b.acknowledged.add(id)
	}
	b.mu.Unlock()
	if late.token != 0 && !acquired {
		b.handOffGrant(t.Request.Mutex, late)
	}
	return o, err
}

// expectLateGrants makes keepLateGrant keep the newest late grant of a ticket, until the ticket's
// End returns.
func (b *Backend) expectLateGrants(ticket string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, kept := b.lateGrants[ticket]; !kept {
		b.lateGrants[ticket] = grant{}
	}
}

// keepLateGrant handles a grant that ended no wait. Until the ticket's End returns, it keeps the
// grant for End. It returns false if the caller must hand the grant off. After End has returned
// StatusAcquired, it returns true, since the client has the tenure.
func (b *Backend) keepLateGrant(g grant) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last, kept := b.lateGrants[g.ticket]; kept {
		if g.token > last.token { // replies may overtake each other
			b.lateGrants[g.ticket] = g
		}
		return true
	}
	return b.acknowledged.has(g.ticket)
}
