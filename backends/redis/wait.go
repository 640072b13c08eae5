package redis

import (
	"context"
	"strconv"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// localWait holds the data of a wait that its proxy.Ticket does not hold. It wraps the client's
// Waiter, and is the Waiter of the ticket's request.
type localWait struct {
	simba.Waiter
	ticket string // names the ticket among those of this server

	// Backend.mu guards the fields below. A script that restores the queue entry must not run after
	// the script that ends the wait. So stopRestoring runs before that script.
	score          string        // the entry's order in the queue, "" = not known
	restoreStopped bool          // reconciling no longer restores the entry
	restoring      int           // how many running reconciliations may restore it
	restoringEnded chan struct{} // closed when restoring falls to 0; nil = nobody awaits that
	earlier        grant         // to an earlier ticket of the contender; zero value = none
}

func waitOf(t *proxy.Ticket) *localWait { return t.Request.Waiter.(*localWait) }

// acquireWaiting is Acquire for a request that waits.
func (b *Backend) acquireWaiting(ctx context.Context, r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
	if b.tasks.ctx.Err() != nil {
		return simba.Outcome{}, nil, simba.ErrStopped
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	uninterrupted, err := b.subs.waitReachable(ctx, r.Mutex)
	if err != nil {
		return simba.Outcome{}, nil, b.requestError(err)
	}
	t, w := b.enter(r)
	s, err := b.acquire(ctx, r, "wait", w.ticket)
	if err != nil {
		if !t.Withdraw() { // a grant or another request has ended the wait: End returns the outcome
			return simba.Outcome{Status: simba.StatusWaiting}, waitTicket{t, b}, nil
		}
		b.orphanTicket(t)
		b.mu.Lock()
		g := w.earlier
		b.mu.Unlock()
		if g.token != 0 {
			b.handOffGrant(r.Mutex, g)
		}
		return simba.Outcome{}, nil, err
	}
	out := s.result()
	if out.Status != simba.StatusWaiting {
		t.Withdraw() // if something else ended the wait meanwhile, the reply is newer
		return out, nil, nil
	}
	// This call comes before the score is set: as soon as the score is known, a reconciliation may
	// find another grant.
	b.expectLateGrants(w.ticket)
	b.mu.Lock()
	w.score, _ = s.extra.(string)
	b.mu.Unlock()
	b.subs.subscribeReleases(r.Mutex)
	// During an interruption another server may have found this server unreachable, and removed the
	// queue entry. Then the mutex is reconciled at once.
	next := time.Now()
	if uninterrupted() {
		next = next.Add(reconcileInterval)
	}
	b.schedule.bringForward(next, r.Mutex)
	return out, waitTicket{t, b}, nil
}

// enter registers a new ticket here. Redis learns of it only by the acquire script.
func (b *Backend) enter(r simba.AcquireRequest) (*proxy.Ticket, *localWait) {
	b.mu.Lock()
	b.lastTicket++
	w := &localWait{Waiter: r.Waiter, ticket: strconv.FormatUint(b.lastTicket, 10)}
	b.mu.Unlock()
	r.Waiter = w
	return b.waiters.Enter(r), w
}

// stopRestoring stops reconciliations from restoring a ticket's queue entry, and waits for running
// ones.
func (b *Backend) stopRestoring(ctx context.Context, t *proxy.Ticket) error {
	w := waitOf(t)
	b.mu.Lock()
	w.restoreStopped = true
	if w.restoring == 0 {
		b.mu.Unlock()
		return nil
	}
	if w.restoringEnded == nil {
		w.restoringEnded = make(chan struct{})
	}
	ended := w.restoringEnded
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
	waitOf(t).restoreStopped = false
}

// endSuperseded ends the wait of a ticket whose queue entry another request of its contender has
// taken over or released. waitEnder.Granted then asks Redis for the outcome.
func (b *Backend) endSuperseded(mutex, contender, ticket string) {
	b.endWait(mutex, contender, ticket, proxy.Grant{Confirm: true})
}

// endWait ends the wait of a ticket by a grant, if the ticket still waits.
func (b *Backend) endWait(mutex, contender, ticket string, with proxy.Grant) {
	if t := b.waiters.Find(mutex, contender); t != nil && waitOf(t).ticket == ticket {
		t.Grant(with)
	}
}
