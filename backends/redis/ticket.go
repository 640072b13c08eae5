package redis

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// seat is the simba.Ticket of a waiter. A grant may arrive here after another one that
// ended the wait, or while End asks Redis what has become of it. End decides about it.
type waitTicket struct {
	*proxy.Ticket
	b *Backend
}

// End implements simba.Ticket.
func (s waitTicket) End(why simba.EndReason) (simba.Outcome, error) {
	b, id := s.b, entryOf(s.Ticket).ticket
	b.claim(id)
	o, err := s.Ticket.End(why)
	told := err == nil && o.Status == simba.StatusAcquired
	b.mu.Lock()
	late := b.lateGrants[id]
	delete(b.lateGrants, id)
	if told {
		b.acknowledged.add(id)
	}
	b.mu.Unlock()
	if late.token != 0 && !told {
		b.handOffSoon(s.Request.Mutex, late)
	}
	return o, err
}

// claim keeps the grants of a ticket until its End has decided about them.
func (b *Backend) claim(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.lateGrants[id]; !known {
		b.lateGrants[id] = grant{}
	}
}

// unclaimed reports whether a grant is to be passed on, since no wait claims it: none
// whose End has yet to return, and none whose End has told of it.
func (b *Backend) mustHandOff(g grant) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last, claimed := b.lateGrants[g.ticket]; claimed {
		if g.token > last.token { // replies may overtake each other
			b.lateGrants[g.ticket] = g
		}
		return false
	}
	return !b.acknowledged.has(g.ticket)
}

// passOn gives a tenure up that nobody here waits for.
func (b *Backend) handOffSoon(mutex string, g grant) {
	b.background(mutex, func(ctx context.Context) {
		if _, err := b.ask(ctx, mutex, handOffScript, g.contender, tokenText(g.token), g.ticket); err != nil {
			b.addOrphan(mutex, orphan{g.contender, g.ticket, time.Now().Add(simba.MaxTTL + simba.MaxTransition)})
		}
	})
}
