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
	l := b.hold(r.Mutex)
	defer b.drop(l)
	if r.Waiter != nil {
		o, t, err := b.acquireBlocked(ctx, l, r)
		for i := 1; i < attempts && errors.Is(err, errLate); i++ {
			late := o
			o, t, err = b.acquireBlocked(ctx, l, r)
			o = again(late, o)
		}
		if t == nil {
			return o, nil, b.failAt(l, err)
		}
		return o, t, nil
	}
	o, err := b.acquire(ctx, l, r)
	for i := 1; i < attempts && errors.Is(err, errLate); i++ {
		late := o
		o, err = b.acquire(ctx, l, r)
		o = again(late, o)
	}
	return o, nil, b.failAt(l, err)
}

// again is what came of a request whose first grant was late. If the second renews what the first began,
// the tenure is new all the same: nobody was told of it.
func again(late, o simba.Outcome) simba.Outcome {
	if o.Status == simba.StatusRenewed && late.Status == simba.StatusAcquired && o.Token == late.Token {
		o.Status = simba.StatusAcquired
	}
	return o
}

// acquire is Acquire without a Waiter. If nobody waits here it is one statement.
func (b *Backend) acquire(ctx context.Context, l *line, r simba.AcquireRequest) (o simba.Outcome, err error) {
	if err := l.gate.enter(ctx, b.owns(l, r.Contender)); err != nil {
		return o, err
	}
	defer l.gate.leave()
	b.lapse(l)
	for range attempts {
		if r.Session == 0 && b.alone(l, r.Contender) {
			t, renewed, ok, err := b.store.acquire(ctx, r)
			if err != nil {
				return o, err
			}
			if ok {
				return b.took(l, r, t, renewed)
			}
		}
		s, err := b.look(ctx, l, true)
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
				return b.took(l, r, t, true)
			}
		case s.live:
			return b.turnAway(l, r, s), nil
		case b.mayTake(l, r.Contender, s.version):
			t := lease{owner: r.Contender, ttl: r.TTL, transition: r.Transition}
			var ok bool
			_, ok, err = b.store.pass(ctx, l.mutex, holder{version: s.version}, &t)
			if err != nil {
				if !isConflict(err) {
					b.bindUnknown(r, t)
				}
				return o, err
			}
			if ok {
				return b.took(l, r, t, false)
			}
		default:
			if b.kept(l) == 0 {
				held, now, err := b.passOn(ctx, l, passage{from: holder{version: s.version}})
				if err != nil {
					return o, err
				}
				if held {
					s = now
				}
			}
			if s.live || b.kept(l) > 0 {
				return b.turnAway(l, r, s), nil
			}
		}
	}
	return o, errRestless
}

// bindUnknown binds a lease to a session whose grant may have been lost.
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

// took ends an Acquire that has the lease. A blocked waiter of the contender has it
// too.
func (b *Backend) took(l *line, r simba.AcquireRequest, t lease, renewed bool) (simba.Outcome, error) {
	status := simba.StatusAcquired
	if renewed {
		status = simba.StatusRenewed
		b.counts.renewed.Add(1)
		b.holds(l, t)
	} else {
		b.began(l, t, "")
	}
	b.exorcise(l, r.Contender)
	b.wakeBlocked(l, t)
	b.quitUnlessBlocked(l, r.Contender)
	b.bind(l.mutex, r.Session, t)
	return granted(status, t)
}

// granted is the outcome of a request that has the lease, errLate if that is over.
func granted(status simba.Status, t lease) (o simba.Outcome, err error) {
	o = simba.Outcome{Status: status, Owner: t.owner, Token: t.token}
	if o.TTL, o.Transition = t.left(); o.Transition == 0 {
		return o, errLate
	}
	return o, nil
}

// turnAway ends an Acquire that cannot have the mutex now.
func (b *Backend) turnAway(l *line, r simba.AcquireRequest, s row) simba.Outcome {
	if r.NoQueue {
		return b.outcome(l, simba.StatusBusy, r.Contender, s)
	}
	if b.join(l, r.Contender) {
		b.eventLog.Announce(simba.Event{Kind: simba.EventQueued, Mutex: l.mutex, Owner: r.Contender})
	}
	return b.outcome(l, simba.StatusQueued, r.Contender, s)
}

// outcome describes a mutex to a contender that has not got it.
func (b *Backend) outcome(l *line, status simba.Status, contender string, s row) simba.Outcome {
	o := simba.Outcome{Status: status, Position: b.position(l, contender)}
	if s.live {
		o.Owner, o.Token = s.owner, s.token
		o.TTL, o.Transition = s.ttlLeft(), s.left()
	} else {
		o.Transition = b.kept(l)
	}
	return o
}

// acquireBlocked is Acquire with a Waiter. The waiter has its place before the table
// is asked, so that no release is missed in between.
func (b *Backend) acquireBlocked(ctx context.Context, l *line, r simba.AcquireRequest) (simba.Outcome, *proxy.Ticket, error) {
	r.Waiter = &seat{Waiter: r.Waiter, since: time.Now()}
	t, fresh := b.seat(l, r)
	o, err := b.tryBlocked(ctx, l, t)
	switch {
	case errors.Is(err, errLate):
		return o, nil, err // it had the mutex
	case err != nil:
		if !t.Withdraw() {
			return simba.Outcome{Status: simba.StatusWaiting}, t, nil // granted after all, or moved
		}
		b.quitUnlessBlocked(l, r.Contender)
		return o, nil, err
	case o.Status != simba.StatusWaiting:
		return o, nil, nil
	}
	if fresh && b.waiters.Find(r.Mutex, r.Contender) == t {
		b.eventLog.Announce(simba.Event{Kind: simba.EventQueued, Mutex: l.mutex, Owner: r.Contender})
	}
	return o, t, nil
}

// seat gives a waiter its ticket and its place, in one step: who leaves, and who is
// granted the mutex, must find both or neither.
func (b *Backend) seat(l *line, r simba.AcquireRequest) (t *proxy.Ticket, fresh bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fresh = b.joinLocked(l, r.Contender)
	return b.waiters.Enter(r), fresh
}

// blocks has whatever grants its contender the mutex from now on wake the waiter. What did so before, and was seen here, is looked for.
func (b *Backend) blocks(l *line, t *proxy.Ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	seatOf(t).blocked = true
	if l.last == t.Request.Contender && time.Now().Before(l.end) {
		l.lookAt = time.Now()
	}
}

// quitUnlessBlocked takes a contender out of the queue that has no ticket any more.
func (b *Backend) quitUnlessBlocked(l *line, contender string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := l.index[contender]
	if e == nil || b.waiters.Find(l.mutex, contender) != nil {
		return false
	}
	l.removeLocked(e)
	return true
}

// tryBlocked asks the table for a waiter that has its place.
func (b *Backend) tryBlocked(ctx context.Context, l *line, t *proxy.Ticket) (o simba.Outcome, err error) {
	r := t.Request
	if b.ahead(l, r.Contender) {
		s, err := b.read(ctx, l.mutex)
		if err != nil {
			return o, err
		}
		if s.live && s.owner != r.Contender {
			b.blocks(l, t)
			return b.outcome(l, simba.StatusWaiting, r.Contender, s), nil
		}
	}
	if err := l.gate.enter(ctx, b.owns(l, r.Contender)); err != nil {
		return o, err
	}
	defer l.gate.leave()
	b.lapse(l)
	for range attempts {
		s, err := b.look(ctx, l, true)
		if err != nil {
			return o, err
		}
		if b.waiters.Find(r.Mutex, r.Contender) != t {
			return b.outcome(l, simba.StatusWaiting, r.Contender, s), nil // granted by the look, or moved
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
			return b.took(l, r, g, true)
		}
		b.claim(l, r.Contender)
		if !s.live && b.kept(l) == 0 {
			held, now, err := b.passOn(ctx, l, passage{from: holder{version: s.version}, asker: t})
			if err != nil {
				if ctx.Err() != context.Canceled {
					b.exorcise(l, r.Contender) // it is told that nobody knows, and will ask again
				}
				return o, err
			}
			if !held && b.kept(l) == 0 {
				continue
			}
			if held {
				s = now
			}
			if own := seatOf(t).lease; held && own.token == s.token {
				return granted(simba.StatusAcquired, own)
			}
		}
		b.blocks(l, t)
		return b.outcome(l, simba.StatusWaiting, r.Contender, s), nil
	}
	return o, errRestless
}
