package proxy

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Acquire implements simba.Backend.
func (e *Engine) Acquire(ctx context.Context, r simba.AcquireRequest) (o simba.Outcome, _ simba.Ticket, err error) {
	var t *Ticket
	err = e.withState(ctx, r.Mutex, r.Contender, func(ctx context.Context, m *mutexState) (err error) {
		err = e.do(ctx, m, r.Contender, func() (err error) {
			o, t, err = e.acquire(ctx, m, r, t)
			return err
		})
		switch {
		case err == nil || t == nil:
		case t.Withdraw():
			e.removeUnlessBlocked(m, r.Contender)
		default: // the ticket was granted meanwhile, or a later ticket has replaced it
			o, err = simba.Outcome{Status: simba.StatusWaiting}, nil
		}
		if err != nil && e.queue != nil {
			e.mu.Lock()
			if b := e.sessions[m.mutex]; b.session == r.Session && b.Owner == r.Contender {
				b.Mark = 0 // the lease may be renewed nevertheless
				e.sessions[m.mutex] = b
			}
			e.mu.Unlock()
			e.settleLater(m.mutex, r.Contender)
		}
		return err
	})
	if err != nil || t == nil {
		return o, nil, err
	}
	return o, t, nil
}

// acquire takes the mutex, renews the lease of its owner, or lets the contender wait. t is the
// ticket of a waiter from an earlier call, nil = none. acquire returns a ticket if the waiter is
// blocked, or has a queue entry after an error. If no other contender waits on this server, acquire
// first tries one step that needs no read. The caller holds m.lock, so it misses no release between
// the read and the queue entry.
func (e *Engine) acquire(ctx context.Context, m *mutexState, r simba.AcquireRequest, t *Ticket) (o simba.Outcome, _ *Ticket, err error) {
	if e.queue != nil {
		return e.acquireQueued(ctx, m, r, t)
	}
	for range attempts {
		refusal := e.Checks.Refusal()
		l := &Lease{Owner: r.Contender, TTL: r.TTL, Transition: r.Transition, Since: time.Now()}
		var s State
		// The lease of a session, and that of a waiter, need a Mark.
		if r.Waiter == nil && r.Session == 0 && refusal == nil && e.isAlone(m, r.Contender) {
			var taking Taking
			taking, s, err = e.take(ctx, m, l)
			if err == nil && taking != Held {
				o, err = e.finishAcquire(m, r, l, taking == Renewed)
				return o, nil, err
			}
			if err == nil {
				s, err = e.digest(ctx, m, s, l.Since, false)
			}
		} else if s = e.recent(m); r.Waiter == nil || !s.Live || s.Owner == r.Contender || refusal != nil {
			s, err = e.refresh(ctx, m)
		}
		if err != nil {
			return o, t, err
		}
		if t != nil && e.Waiters.Find(r.Mutex, r.Contender) != t {
			// The refresh has granted the ticket, or a later ticket has replaced it.
			return simba.Outcome{Status: simba.StatusWaiting}, t, nil
		}
		l.Since = time.Now()
		switch {
		case s.Live && s.Owner == r.Contender:
			l.Token = s.Token
			ok, err := e.renew(ctx, m, l)
			if err != nil {
				return o, t, err
			}
			if ok && (t == nil || t.Withdraw()) {
				o, err = e.finishAcquire(m, r, l, true)
				return o, nil, err
			}
			continue
		case refusal != nil:
			return o, t, refusal
		case !s.Live && r.Waiter == nil && e.mayTake(m, r.Contender, s.Revision):
			_, ok, err := e.pass(ctx, m, From{Revision: s.Revision}, l)
			if err != nil && r.Session != 0 && l.Mark != 0 && !isNotDone(err) {
				e.bind(m.mutex, r.Session, Lease{Owner: l.Owner, TTL: l.TTL, Transition: l.Transition, Since: l.Since, Mark: l.Mark})
			}
			if err == nil && ok {
				o, err = e.finishAcquire(m, r, l, false)
			}
			if err != nil || ok {
				return o, nil, err
			}
			continue
		}
		if r.Waiter != nil && t == nil {
			t = e.enter(m, r)
		}
		if !s.Live && e.reservationLeft(m) == 0 {
			// The mutex is free. The next waiter gets it, which may be this one.
			now, done, err := e.handOff(ctx, m, handoff{from: From{Revision: s.Revision}, requester: t})
			if err != nil {
				if ctx.Err() != context.Canceled {
					// The client gets an error and asks again. If the grant took effect, the next
					// request finds it.
					e.dropOrphansOf(m, r.Contender)
				}
				return o, t, err
			}
			if t != nil && t.own.Owner != "" {
				o, err = t.own.outcome(simba.StatusAcquired)
				return o, nil, err
			}
			if done {
				s = now
			}
		}
		if s.Live || e.reservationLeft(m) > 0 {
			return e.refuseOrWait(m, r, t, s), t, nil
		}
	}
	return o, t, errKeepsChanging
}

// recent returns the state of a mutex if this server has read or changed it within recentTime, and
// if the lease is running. So waiters that come one after another do not read the mutex each. In
// case one of them owns the mutex since, through another server, the next refresh comes soon.
func (e *Engine) recent(m *mutexState) (s State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := time.Now(); len(m.orphans) > 0 || now.Sub(m.seenAt) > recentTime || !now.Before(m.leaseEnd()) {
		return s
	}
	m.refreshByLocked(m.seenAt.Add(recentTime))
	return m.seen
}

const recentTime = 100 * time.Millisecond

// enter makes the ticket and the queue entry of a blocked waiter. If the mutex is reserved for the
// waiter, the reservation ends.
func (e *Engine) enter(m *mutexState, r simba.AcquireRequest) *Ticket {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w := e.enqueueLocked(m, r.Contender); m.reserved == w {
		m.reserved = nil
	}
	return e.Waiters.Enter(r)
}

// pass is Store.Pass as a step of the mutex.
func (e *Engine) pass(ctx context.Context, m *mutexState, from From, to *Lease) (revision uint64, ok bool, err error) {
	err = e.step(ctx, m, func() (err error) {
		revision, ok, err = e.store.Pass(ctx, m.mutex, from, to)
		return err
	})
	return revision, ok, err
}

// renew is Store.Renew as a step of the mutex.
func (e *Engine) renew(ctx context.Context, m *mutexState, l *Lease) (ok bool, err error) {
	err = e.step(ctx, m, func() (err error) {
		ok, err = e.store.Renew(ctx, m.mutex, l)
		return err
	})
	return ok, err
}

// finishAcquire completes an Acquire that got the lease. It also wakes a blocked request of the
// same contender.
func (e *Engine) finishAcquire(m *mutexState, r simba.AcquireRequest, l *Lease, renewed bool) (simba.Outcome, error) {
	status := simba.StatusAcquired
	if renewed {
		status = simba.StatusRenewed
		e.Counts.Renewed.Add(1)
		e.noteRenewal(m, l)
	} else {
		e.recordBegin(m, l, "")
	}
	e.dropOrphansOf(m, r.Contender)
	e.wakeOwner(m, *l)
	e.removeUnlessBlocked(m, r.Contender)
	e.bind(m.mutex, r.Session, *l)
	return l.outcome(status)
}

// outcome returns the outcome of a request that has the lease, or errLate if the lease has ended.
func (l *Lease) outcome(status simba.Status) (o simba.Outcome, err error) {
	o = simba.Outcome{Status: status, Owner: l.Owner, Token: l.Token}
	if o.TTL, o.Transition = l.left(); o.Transition == 0 {
		return o, errLate
	}
	return o, nil
}

// refuseOrWait returns the outcome of a request that does not get the mutex.
func (e *Engine) refuseOrWait(m *mutexState, r simba.AcquireRequest, t *Ticket, s State) simba.Outcome {
	if t == nil && r.NoQueue {
		return e.outcome(m, simba.StatusBusy, r.Contender, s)
	}
	e.mu.Lock()
	w := e.enqueueLocked(m, r.Contender)
	fresh := !w.announced
	w.announced = true
	e.mu.Unlock()
	if fresh {
		e.Events.Record(simba.Event{Kind: simba.EventQueued, Mutex: m.mutex, Owner: r.Contender})
	}
	if t != nil {
		return e.outcome(m, simba.StatusWaiting, r.Contender, s)
	}
	return e.outcome(m, simba.StatusQueued, r.Contender, s)
}

func (e *Engine) outcome(m *mutexState, status simba.Status, contender string, s State) simba.Outcome {
	o := simba.Outcome{Status: status}
	if s.Position != nil {
		o.Position = s.Position(contender)
	} else if e.queue == nil {
		o.Position = e.position(m, contender)
	}
	if s.Live {
		o.Owner, o.Token, o.TTL, o.Transition = s.Owner, s.Token, s.ttlLeft(), s.left()
		if e.queue != nil && s.Owner == "" {
			o.Transition = e.HandoffWindow()
		}
	} else {
		o.Transition = e.reservationLeft(m)
	}
	return o
}
