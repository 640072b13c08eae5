package redis

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// A waiter's grant may arrive in the reply of a script of this server, or in a message of another
// server's script. Several replies and messages may carry the same grant, in any order.

// delivery is a grant that this server has handled.
type delivery struct {
	ticket string
	token  uint64
}

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
		isNew := s.extra == int64(1) // false = this server has handled the grant before
		b.deliver(mutex, g, proxy.Grant{Token: g.token, Since: s.began()}, isNew)
	default:
		b.schedule.bringForward(time.Now(), mutex)
	}
}

// deliver ends the wait of a grant's ticket. If the ticket no longer waits and the grant is new to
// this server, deliver hands the grant off. Only the first call for a grant has an effect.
func (b *Backend) deliver(mutex string, g grant, with proxy.Grant, isNew bool) {
	with.Ticket = g.ticket
	b.mu.Lock()
	first := b.delivered.add(delivery{g.ticket, g.token})
	b.mu.Unlock()
	if !first {
		return
	}
	for t := b.waiters.Find(mutex, g.contender); t != nil; t = b.waiters.Find(mutex, g.contender) {
		if waitOf(t).ticket != g.ticket {
			b.noteEarlierGrant(mutex, t, g)
			return
		}
		if t.Grant(with) {
			return
		}
	}
	if isNew && !b.keepLateGrant(g) {
		b.handOffGrant(mutex, g)
	}
}

// noteEarlierGrant handles a grant to an earlier ticket of a contender that now waits by the ticket
// later. If Redis runs the later ticket's acquire script during the granted tenure, the script
// renews that tenure. If Redis ran it before the grant, a reconciliation finds the tenure.
func (b *Backend) noteEarlierGrant(mutex string, later *proxy.Ticket, g grant) {
	b.mu.Lock()
	waitOf(later).earlier = g
	b.mu.Unlock()
	b.schedule.bringForward(time.Now(), mutex)
}

// handOffGrant hands off, in the background, a grant that nobody here can take.
func (b *Backend) handOffGrant(mutex string, g grant) {
	b.background(mutex, func(ctx context.Context) {
		if _, err := b.ask(ctx, mutex, giveBackScript, g.contender, tokenText(g.token), g.ticket); err != nil {
			b.addChore(mutex, chore{g.contender, g.ticket, time.Now().Add(simba.MaxTTL + simba.MaxTransition)}, retryAfter)
		}
	})
}

// forgetOldGrants forgets grants that were handled before its previous call.
func (b *Backend) forgetOldGrants() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.delivered.rotate()
	b.acknowledged.rotate()
}
