package redis

import (
	"context"
	"strconv"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// How a request waits for a mutex, and how its wait ends.

// queueEntry is a ticket's entry in the queue of the mutex at Redis. It wraps the client's Waiter,
// and is the Waiter of the ticket's request.
type queueEntry struct {
	simba.Waiter
	ticket string // names the ticket among those of this server

	// Backend.mu guards the fields below. A script that restores the entry must not run after the
	// script that ends it. So restoring stops first.
	score          string        // its order in the queue, "" = not known
	restoreStopped bool          // reconciling no longer restores the entry
	restoring      int           // how many running reconciliations may restore it
	restoringEnded chan struct{} // closed when restoring falls to 0; nil = nobody awaits that
	earlier        grant         // of an earlier ticket of its contender; the zero value = none
}

func entryOf(t *proxy.Ticket) *queueEntry { return t.Request.Waiter.(*queueEntry) }

// acquireWaiting is Acquire for a request that waits.
func (b *Backend) acquireWaiting(ctx context.Context, r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
	if b.tasks.ctx.Err() != nil {
		return simba.Outcome{}, nil, simba.ErrStopped
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	reachable, err := b.subs.waitReachable(ctx, r.Mutex)
	if err != nil {
		return simba.Outcome{}, nil, b.requestError(err)
	}
	t, e := b.enter(r)
	s, err := b.acquire(ctx, r, "wait", e.ticket)
	if err != nil {
		if !t.Withdraw() { // a message has ended the wait already: End returns the outcome
			return simba.Outcome{Status: simba.StatusWaiting}, waitTicket{t, b}, nil
		}
		b.orphanTicket(t)
		b.mu.Lock()
		g := e.earlier
		b.mu.Unlock()
		if g.token != 0 {
			b.handOffGrant(r.Mutex, g)
		}
		return simba.Outcome{}, nil, err
	}
	out := s.result()
	if out.Status != simba.StatusWaiting {
		t.Withdraw() // if a message ended the wait meanwhile, the reply is newer
		return out, nil, nil
	}
	// This comes before the score is set, because from then on reconciling may find another grant.
	b.keepLateGrants(e.ticket)
	b.mu.Lock()
	e.score, _ = s.extra.(string)
	b.mu.Unlock()
	b.subs.subscribeReleases(r.Mutex)
	next := time.Now() // another server that could not reach this one may have removed the entry
	if reachable() {
		next = next.Add(reconcileInterval)
	}
	b.schedule.bringForward(r.Mutex, next)
	return out, waitTicket{t, b}, nil
}

// enter makes a ticket and its queue entry, before Redis has either.
func (b *Backend) enter(r simba.AcquireRequest) (*proxy.Ticket, *queueEntry) {
	b.mu.Lock()
	b.lastTicket++
	e := &queueEntry{Waiter: r.Waiter, ticket: strconv.FormatUint(b.lastTicket, 10)}
	b.mu.Unlock()
	r.Waiter = e
	return b.waiters.Enter(r), e
}

// stopRestoring stops reconciliations from restoring a ticket's queue entry, and waits for those
// that are running.
func (b *Backend) stopRestoring(ctx context.Context, t *proxy.Ticket) error {
	e := entryOf(t)
	b.mu.Lock()
	e.restoreStopped = true
	if e.restoring == 0 {
		b.mu.Unlock()
		return nil
	}
	if e.restoringEnded == nil {
		e.restoringEnded = make(chan struct{})
	}
	ended := e.restoringEnded
	b.mu.Unlock()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return b.requestError(ctx.Err())
	}
}

// allowRestoring undoes stopRestoring.
func (b *Backend) allowRestoring(t *proxy.Ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	entryOf(t).restoreStopped = false
}

// endReplaced ends the wait of a ticket that another request of its contender has replaced.
// waiterStore.Granted then asks Redis for the outcome.
func (b *Backend) endReplaced(mutex, contender, ticket string) {
	b.endWait(mutex, contender, ticket, proxy.Grant{Confirm: true})
}

// endWait ends the wait of a ticket by a grant, if it still waits.
func (b *Backend) endWait(mutex, contender, ticket string, with proxy.Grant) {
	if t := b.waiters.Find(mutex, contender); t != nil && entryOf(t).ticket == ticket {
		t.Grant(with)
	}
}
