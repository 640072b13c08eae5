package redis

import (
	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// waitTicket is the simba.Ticket of a waiter.
type waitTicket struct {
	*proxy.Ticket
	b *Backend
}

// End implements simba.Ticket.
func (t waitTicket) End(why simba.EndReason) (simba.Outcome, error) {
	o, err := t.Ticket.End(why)
	t.b.forget(t.Ticket, err == nil && o.Status == simba.StatusAcquired)
	return o, err
}
