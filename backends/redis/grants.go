package redis

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// A waiter's grant may arrive in the reply of a script of this server, or in a message of another
// server's script. Several replies and messages may carry the same grant, in any order, and they
// may arrive after the wait has ended. Redis decides who has such a late grant, because the script
// that ends a wait takes or ends the tenure of its ticket, and lets the ticket get no later one:
//
//   - leave.lua returns the tenure, or ends it if the client is gone;
//   - confirm.lua returns the tenure, also a later one than the grant that ended the wait;
//   - acquire.lua renews the tenure for a later ticket of the contender.
//
// If such a request fails, its ticket becomes an orphan. A request that this server has given up
// can still queue its ticket after that. So a grant to a ticket that this server does not know
// makes an orphan too.

// confirmGrant checks a grant that a message carried, notes in Redis that this server has it, and
// delivers it. A message alone proves nothing, so confirmGrant asks Redis for the owner. In a
// cluster, a script's message reaches all subscribers, but the script counts only those at its own
// node. If it counts none, it grants the mutex to another waiter, although its message arrives.
func (b *Backend) confirmGrant(ctx context.Context, mutex string, g grant) {
	s, err := b.ask(ctx, mutex, confirmScript, g.contender, tokenText(g.token), g.ticket, "received")
	switch {
	case err != nil:
		b.schedule.bringForward(time.Now().Add(retryAfter), mutex) // to find the grant again
	case s.owner == g.contender && s.token == g.token:
		isNew := s.extra == int64(1) // false = a request of this server has found the grant before
		b.deliver(mutex, g, proxy.Grant{Token: g.token, Since: s.began()}, isNew)
	default:
		b.schedule.bringForward(time.Now(), mutex)
	}
}

// deliver ends the wait of a grant's ticket. If this server does not know the ticket, and the grant
// is new, deliver makes an orphan.
func (b *Backend) deliver(mutex string, g grant, with proxy.Grant, isNew bool) {
	with.Ticket = g.ticket
	t := b.Waiters.Find(mutex, g.contender)
	b.mu.Lock()
	known := b.tickets[g.ticket] // the wait's End finds the tenure, or has found it
	b.mu.Unlock()
	switch {
	case t != nil && waitOf(t).ticket == g.ticket:
		t.Grant(with)
	case t != nil:
		// The contender waits by a later ticket. If Redis ran that ticket's acquire script before
		// the grant, a reconciliation finds the tenure.
		b.schedule.bringForward(time.Now(), mutex)
	case isNew && !known:
		b.addChore(mutex, chore{g.contender, g.ticket, time.Now().Add(simba.MaxTTL + simba.MaxTransition)}, 0)
	}
}
