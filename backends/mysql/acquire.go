package mysql

import (
	"context"
	"errors"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Acquire implements simba.Backend.
func (b *Backend) Acquire(ctx context.Context, r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
	if err := b.checkNames(r.Mutex, r.Contender); err != nil {
		return simba.Outcome{}, nil, err
	}
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return simba.Outcome{}, nil, err
	}
	defer done()
	m := b.ref(r.Mutex)
	defer b.unref(m)
	if r.Waiter != nil {
		o, t, err := b.acquireBlocked(ctx, m, r)
		for i := 1; i < attempts && errors.Is(err, errLate); i++ {
			late := o
			o, t, err = b.acquireBlocked(ctx, m, r)
			o = afterLate(late, o)
		}
		if t == nil {
			return o, nil, b.failAt(m, err)
		}
		return o, t, nil
	}
	o, err := b.acquire(ctx, m, r)
	for i := 1; i < attempts && errors.Is(err, errLate); i++ {
		late := o
		o, err = b.acquire(ctx, m, r)
		o = afterLate(late, o)
	}
	return o, nil, b.failAt(m, err)
}

// afterLate returns the outcome o of an attempt that follows a late attempt. The lease of the late
// attempt ended before the answer arrived. If o renews that lease's tenure, afterLate changes the
// status to acquired, because the client has not seen that tenure before.
func afterLate(late, o simba.Outcome) simba.Outcome {
	if o.Status == simba.StatusRenewed && late.Status == simba.StatusAcquired && o.Token == late.Token {
		o.Status = simba.StatusAcquired
	}
	return o
}

// acquire is Acquire without a Waiter. If no other contender waits on this server, it first tries
// one statement that needs no read.
func (b *Backend) acquire(ctx context.Context, m *mutexState, r simba.AcquireRequest) (o simba.Outcome, err error) {
	if err := m.lock.lock(ctx, b.owns(m, r.Contender)); err != nil {
		return o, err
	}
	defer m.lock.unlock()
	b.expireEntries(m)
	for range attempts {
		refusal := b.checks.Refusal()
		if r.Session == 0 && refusal == nil && b.isOnlyContender(m, r.Contender) {
			t, renewed, ok, err := b.store.acquire(ctx, r)
			if err != nil {
				return o, err
			}
			if ok {
				return b.finishAcquire(m, r, t, renewed)
			}
		}
		s, err := b.refresh(ctx, m, true)
		if err != nil {
			return o, err
		}
		switch {
		case s.live && s.owner == r.Contender:
			t, ok, err := b.renew(ctx, r, s.token)
			if err != nil {
				return o, err
			}
			if ok {
				return b.finishAcquire(m, r, t, true)
			}
		case refusal != nil:
			return o, refusal
		case s.live:
			return b.refuseOrEnqueue(m, r, s), nil
		case b.mayTake(m, r.Contender, s.version):
			t := lease{owner: r.Contender, ttl: r.TTL, transition: r.Transition}
			var ok bool
			_, ok, err = b.store.handOff(ctx, m.mutex, holder{version: s.version}, &t)
			if err != nil {
				if !isConflict(err) {
					b.bindUnknown(r, t)
				}
				return o, err
			}
			if ok {
				return b.finishAcquire(m, r, t, false)
			}
		default:
			if b.reservationLeft(m) == 0 {
				held, now, err := b.handOff(ctx, m, handoff{from: holder{version: s.version}})
				if err != nil {
					return o, err
				}
				if held {
					s = now
				}
			}
			if s.live || b.reservationLeft(m) > 0 {
				return b.refuseOrEnqueue(m, r, s), nil
			}
		}
	}
	return o, errKeepsChanging
}

// bindUnknown binds a lease whose token is unknown, because the answer to the grant was lost.
func (b *Backend) bindUnknown(r simba.AcquireRequest, t lease) {
	if r.Session != 0 {
		t.token = 0
		b.bind(r.Mutex, r.Session, t)
	}
}

func (b *Backend) renew(ctx context.Context, r simba.AcquireRequest, token uint64) (lease, bool, error) {
	return b.store.guard(ctx, simba.GuardRequest{
		Mutex: r.Mutex, Contender: r.Contender, TTL: r.TTL, Transition: r.Transition, Token: token,
	})
}

// finishAcquire completes an Acquire that got the lease. It also wakes a blocked request of the
// same contender.
func (b *Backend) finishAcquire(m *mutexState, r simba.AcquireRequest, t lease, renewed bool) (simba.Outcome, error) {
	status := simba.StatusAcquired
	if renewed {
		status = simba.StatusRenewed
		b.counts.renewed.Add(1)
		b.noteLease(m, t)
	} else {
		b.recordBegin(m, t, "")
	}
	b.dropOrphansOf(m, r.Contender)
	b.wakeBlocked(m, t)
	b.removeUnlessBlocked(m, r.Contender)
	b.bind(m.mutex, r.Session, t)
	return granted(status, t)
}

// granted returns the outcome of a request that has the lease, or errLate if the lease has ended.
func granted(status simba.Status, t lease) (o simba.Outcome, err error) {
	o = simba.Outcome{Status: status, Owner: t.owner, Token: t.token}
	if o.TTL, o.Transition = t.left(); o.Transition == 0 {
		return o, errLate
	}
	return o, nil
}

func (b *Backend) refuseOrEnqueue(m *mutexState, r simba.AcquireRequest, s row) simba.Outcome {
	if r.NoQueue {
		return b.outcome(m, simba.StatusBusy, r.Contender, s)
	}
	if b.enqueue(m, r.Contender) {
		b.eventLog.Announce(simba.Event{Kind: simba.EventQueued, Mutex: m.mutex, Owner: r.Contender})
	}
	return b.outcome(m, simba.StatusQueued, r.Contender, s)
}

func (b *Backend) outcome(m *mutexState, status simba.Status, contender string, s row) simba.Outcome {
	o := simba.Outcome{Status: status, Position: b.position(m, contender)}
	if s.live {
		o.Owner, o.Token = s.owner, s.token
		o.TTL, o.Transition = s.ttlLeft(), s.left()
	} else {
		o.Transition = b.reservationLeft(m)
	}
	return o
}

// acquireBlocked is Acquire with a Waiter. It enqueues the waiter before it reads the table, so
// that it misses no release in between.
func (b *Backend) acquireBlocked(ctx context.Context, m *mutexState, r simba.AcquireRequest) (simba.Outcome, *proxy.Ticket, error) {
	r.Waiter = &waitState{Waiter: r.Waiter, since: time.Now()}
	t, fresh := b.enqueueBlocked(m, r)
	o, err := b.tryAcquireBlocked(ctx, m, t)
	switch {
	case errors.Is(err, errLate):
		return o, nil, err // the lease has ended
	case err != nil:
		if !t.Withdraw() {
			// The ticket was granted meanwhile, or a later ticket has replaced it.
			return simba.Outcome{Status: simba.StatusWaiting}, t, nil
		}
		b.removeUnlessBlocked(m, r.Contender)
		return o, nil, err
	case o.Status != simba.StatusWaiting:
		return o, nil, nil
	}
	if fresh && b.waiters.Find(r.Mutex, r.Contender) == t {
		b.eventLog.Announce(simba.Event{Kind: simba.EventQueued, Mutex: m.mutex, Owner: r.Contender})
	}
	return o, t, nil
}

// enqueueBlocked creates the waiter's ticket and its queue entry in one step, so that other
// goroutines never see only one of them.
func (b *Backend) enqueueBlocked(m *mutexState, r simba.AcquireRequest) (t *proxy.Ticket, fresh bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fresh = b.enqueueLocked(m, r.Contender)
	return b.waiters.Enter(r), fresh
}

// markBlocked records that Acquire returns StatusWaiting. From now on, wakeBlocked may wake the
// waiter. If this server already knows that the contender owns the mutex, markBlocked schedules a
// refresh at once.
func (b *Backend) markBlocked(m *mutexState, t *proxy.Ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	waitStateOf(t).blocked = true
	if m.lastOwner == t.Request.Contender && time.Now().Before(m.leaseEnd) {
		m.refreshAt = time.Now()
	}
}

// removeUnlessBlocked removes a contender's queue entry, unless the contender still has a ticket.
func (b *Backend) removeUnlessBlocked(m *mutexState, contender string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := m.index[contender]
	if e == nil || b.waiters.Find(m.mutex, contender) != nil {
		return false
	}
	m.removeLocked(e)
	return true
}

func (b *Backend) tryAcquireBlocked(ctx context.Context, m *mutexState, t *proxy.Ticket) (o simba.Outcome, err error) {
	r := t.Request
	refusal := b.checks.Refusal()
	if refusal == nil && b.hasWaiterAhead(m, r.Contender) {
		s, err := b.read(ctx, m.mutex)
		if err != nil {
			return o, err
		}
		if s.live && s.owner != r.Contender {
			b.markBlocked(m, t)
			return b.outcome(m, simba.StatusWaiting, r.Contender, s), nil
		}
	}
	if err := m.lock.lock(ctx, b.owns(m, r.Contender)); err != nil {
		return o, err
	}
	defer m.lock.unlock()
	b.expireEntries(m)
	for range attempts {
		s, err := b.refresh(ctx, m, true)
		if err != nil {
			return o, err
		}
		if b.waiters.Find(r.Mutex, r.Contender) != t {
			// The refresh has granted the ticket, or a later ticket has replaced it.
			return b.outcome(m, simba.StatusWaiting, r.Contender, s), nil
		}
		if s.live && s.owner == r.Contender {
			g, ok, err := b.renew(ctx, r, s.token)
			if err != nil {
				return o, err
			}
			if !ok {
				continue
			}
			t.Withdraw()
			return b.finishAcquire(m, r, g, true)
		}
		if refusal != nil {
			return o, refusal
		}
		b.claimReservation(m, r.Contender)
		if !s.live && b.reservationLeft(m) == 0 {
			held, now, err := b.handOff(ctx, m, handoff{from: holder{version: s.version}, requester: t})
			if err != nil {
				if ctx.Err() != context.Canceled {
					// The client gets an error and asks again. If the grant took effect, the next
					// request finds it.
					b.dropOrphansOf(m, r.Contender)
				}
				return o, err
			}
			if !held && b.reservationLeft(m) == 0 {
				continue
			}
			if held {
				s = now
			}
			if own := waitStateOf(t).lease; held && own.token == s.token {
				return granted(simba.StatusAcquired, own)
			}
		}
		b.markBlocked(m, t)
		return b.outcome(m, simba.StatusWaiting, r.Contender, s), nil
	}
	return o, errKeepsChanging
}
