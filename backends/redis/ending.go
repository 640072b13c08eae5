package redis

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// seat is the simba.Ticket of a waiter. While its End asks Redis what has become of the
// wait, the grant may arrive here, too: then End says what becomes of it.
type seat struct {
	*proxy.Ticket
	b *Backend
}

// End implements simba.Ticket.
func (s seat) End(why simba.EndReason) (simba.Outcome, error) {
	b, id := s.b, placeOf(s.Ticket).ticket
	b.mu.Lock()
	b.ending[id] = grant{}
	b.mu.Unlock()
	o, err := s.Ticket.End(why)
	told := err == nil && o.Status == simba.StatusAcquired
	b.mu.Lock()
	late := b.ending[id]
	delete(b.ending, id)
	if told {
		b.told.add(id)
	}
	b.mu.Unlock()
	if late.token != 0 && !told {
		b.passOn(s.Request.Mutex, late)
	}
	return o, err
}

// unclaimed reports whether a grant is to be passed on, since no wait claims it: none
// that is about to end, and none whose End has told of it.
func (b *Backend) unclaimed(g grant) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ending := b.ending[g.ticket]; ending {
		b.ending[g.ticket] = g
		return false
	}
	return !b.told.has(g.ticket)
}

// passOn gives a tenure up that nobody here waits for.
func (b *Backend) passOn(mutex string, g grant) {
	b.background(func(ctx context.Context) {
		if _, err := b.ask(ctx, mutex, passScript, g.contender, tokenText(g.token), g.ticket); err != nil {
			b.haunt(mutex, ghost{g.contender, g.ticket, time.Now().Add(simba.MaxTTL + simba.MaxTransition)})
		}
	})
}
