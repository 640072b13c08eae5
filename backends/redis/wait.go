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
	restored       chan struct{} // closed when the last script that may restore the entry has run; nil = none
	restoreStopped bool          // reconciling no longer restores the entry
}

func waitOf(t *proxy.Ticket) *localWait { return t.Request.Waiter.(*localWait) }

// acquireWaiting is Acquire for a request that waits.
func (b *Backend) acquireWaiting(ctx context.Context, r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
	if b.Stopped() {
		return simba.Outcome{}, nil, simba.ErrStopped
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	uninterrupted, err := b.subs.waitReachable(ctx, r.Mutex)
	if err != nil {
		return simba.Outcome{}, nil, b.requestError(err)
	}
	t, earlier := b.enter(r)
	w := waitOf(t)
	s, err := b.acquire(ctx, r, "wait", w.ticket)
	if err != nil {
		if earlier != nil { // its wait has ended, and this request may not have taken over its grant
			b.orphanTicket(earlier)
		}
		if !t.Withdraw() { // a grant or another request has ended the wait: End returns the outcome
			return simba.Outcome{Status: simba.StatusWaiting}, waitTicket{t, b}, nil
		}
		b.forget(t, false)
		b.orphanTicket(t)
		return simba.Outcome{}, nil, err
	}
	out := s.result()
	if out.Status != simba.StatusWaiting {
		t.Withdraw() // if something else ended the wait meanwhile, the reply is newer
		b.forget(t, false)
		return out, nil, nil
	}
	b.mu.Lock()
	w.score, _ = s.extra.(string)
	b.mu.Unlock()
	// Any program publishes releases on these channels. onConfirmed reconciles the mutex when the
	// confirmations come.
	b.subs.subscribe(simba.MutexChannel(r.Mutex))
	b.subs.subscribe(contenderGlob)
	// During an interruption another server may have found this server unreachable, and removed the
	// queue entry. Then the mutex is reconciled at once.
	next := time.Now()
	if uninterrupted() {
		next = next.Add(reconcileInterval)
	}
	b.schedule.bringForward(next, r.Mutex)
	return out, waitTicket{t, b}, nil
}

// enter registers a new ticket here. Redis learns of it only by the acquire script. earlier is the
// ticket that it replaces, nil if there is none.
func (b *Backend) enter(r simba.AcquireRequest) (t, earlier *proxy.Ticket) {
	b.mu.Lock()
	b.lastTicket++
	w := &localWait{Waiter: r.Waiter, ticket: strconv.FormatUint(b.lastTicket, 10)}
	b.tickets[w.ticket] = true
	b.mu.Unlock()
	r.Waiter = w
	return b.Waiters.Replace(r)
}

// forget forgets a ticket whose wait has ended. If the client has got the tenure, forget waits
// until every reply has arrived, since a reply that reports the grant may be late.
func (b *Backend) forget(t *proxy.Ticket, acquired bool) {
	remove := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.tickets, waitOf(t).ticket)
	}
	if acquired {
		time.AfterFunc(2*b.timeout, remove)
	} else {
		remove()
	}
}

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

// stopRestoring stops reconciliations from restoring a ticket's queue entry, and waits for a
// running one, which takes Options.Timeout at most.
func (b *Backend) stopRestoring(t *proxy.Ticket) {
	w := waitOf(t)
	b.mu.Lock()
	w.restoreStopped = true
	restored := w.restored
	b.mu.Unlock()
	if restored != nil {
		<-restored
	}
}

// endWait ends the wait of a ticket by a grant, if the ticket still waits. If another request of
// the contender has taken over or released its queue entry, the grant is only Confirm, and
// waitEnder.Granted asks Redis for the outcome.
func (b *Backend) endWait(mutex, contender, ticket string, with proxy.Grant) {
	if t := b.Waiters.Find(mutex, contender); t != nil && waitOf(t).ticket == ticket {
		t.Grant(with)
	}
}
