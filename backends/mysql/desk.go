package mysql

import (
	"context"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// desk is the Backend as the proxy.Store of its waiters: what becomes of a wait that
// ends.
type desk Backend

// dismissed is the token of a Grant that takes a waiter out of the queue.
const dismissed = 0

// Granted implements proxy.Store.
func (d *desk) Granted(t *proxy.Ticket, g proxy.Grant) (simba.Outcome, error) {
	b := (*Backend)(d)
	if b.ctx.Err() != nil {
		return simba.Outcome{}, simba.ErrStopped
	}
	l := seatOf(t).lease
	if g.Token != dismissed && l.token == g.Token {
		if o, err := granted(simba.StatusAcquired, l); err == nil {
			return o, nil
		}
	}
	return b.settleWait(t, func(l *line, s row) simba.Outcome {
		if g.Token != dismissed && s.live && s.owner == t.Request.Contender && s.token == g.Token {
			return b.outcome(l, simba.StatusAcquired, s.owner, s)
		}
		return b.outcome(l, simba.StatusTimeout, t.Request.Contender, s)
	})
}

// Reacquire implements proxy.Store.
func (d *desk) Reacquire(t *proxy.Ticket) (simba.Outcome, simba.Ticket, error) {
	r := t.Request
	r.Waiter = seatOf(t).Waiter
	return (*Backend)(d).Acquire(context.Background(), r)
}

// Replaced implements proxy.Store.
func (d *desk) Replaced(t *proxy.Ticket) (simba.Outcome, error) {
	b := (*Backend)(d)
	return b.settleWait(t, func(l *line, s row) simba.Outcome {
		return b.outcome(l, simba.StatusQueued, t.Request.Contender, s)
	})
}

// Leave implements proxy.Store.
func (d *desk) Leave(t *proxy.Ticket, why simba.EndReason) (simba.Outcome, error) {
	b, contender := (*Backend)(d), t.Request.Contender
	b.unseat(t, why)
	return b.settleWait(t, func(l *line, s row) simba.Outcome {
		switch {
		case s.live && s.owner == contender && why != simba.EndGone:
			return b.outcome(l, simba.StatusAcquired, contender, s)
		case why == simba.EndGone:
			return b.outcome(l, simba.StatusQueued, contender, s)
		}
		return b.outcome(l, simba.StatusTimeout, contender, s)
	})
}

// settleWait reads the mutex of a wait that ended and lets say decide. In the gate no
// handoff is under way: it has reached the waiter, or was passed on.
func (b *Backend) settleWait(t *proxy.Ticket, say func(*line, row) simba.Outcome) (o simba.Outcome, err error) {
	l := b.hold(t.Request.Mutex)
	defer b.drop(l)
	ctx, done, err := b.begin(context.Background())
	if err != nil {
		return o, err
	}
	defer done()
	if err := l.gate.enter(ctx, false); err != nil {
		return o, b.fail(err)
	}
	defer l.gate.leave()
	s, err := b.look(ctx, l, false)
	if err == nil {
		o = say(l, s)
	}
	return o, b.fail(err)
}

// unseat takes the waiter of a wait that ended out of the queue, or makes it a polling
// one if its connection is gone. If another connection of its contender waits by now,
// the place is that one's.
func (b *Backend) unseat(t *proxy.Ticket, why simba.EndReason) {
	contender := t.Request.Contender
	l := b.hold(t.Request.Mutex)
	defer b.drop(l)
	if why == simba.EndGone {
		b.mu.Lock()
		if e := l.index[contender]; e != nil {
			e.toldAt = 0
			b.refreshLocked(l, e)
		}
		b.mu.Unlock()
		return
	}
	if !b.quitUnlessBlocked(l, contender) {
		return
	}
	reason := "left"
	if why == simba.EndTimeout {
		reason = "timeout"
	}
	b.eventLog.Announce(simba.Event{Kind: simba.EventLeft, Mutex: l.mutex, Owner: contender, Reason: reason})
}

// HandOff implements proxy.Store.
func (d *desk) HandOff(t *proxy.Ticket, g proxy.Grant) error {
	b, granted := (*Backend)(d), seatOf(t).lease
	if g.Token == dismissed || granted.token != g.Token || granted.at == 0 {
		return nil // its contender has learned of it by another request
	}
	l := b.hold(t.Request.Mutex)
	defer b.drop(l)
	ctx, done, err := b.begin(context.Background())
	if err != nil {
		return err
	}
	defer done()
	// Should this request fail, a look passes it on.
	end := granted.at + (granted.ttl + granted.transition).Milliseconds()
	b.haunt(l, ghost{owner: granted.owner, at: granted.at, dead: end})
	if err := l.gate.enter(ctx, false); err != nil {
		return b.fail(err)
	}
	defer l.gate.leave()
	_, _, err = b.passOn(ctx, l, passage{
		from: holder{owner: granted.owner, token: granted.token, at: granted.at}, kind: simba.EventReleased, reason: "waiter gone",
	})
	if err == nil {
		b.lay(l, granted.owner, granted.at)
	}
	return b.fail(err)
}
