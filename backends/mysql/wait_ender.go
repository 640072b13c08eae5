package mysql

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// waitEnder implements proxy.WaitEnder for the waiters of a Backend.
type waitEnder Backend

// removedToken is the token of a Grant that removes a waiter from the queue without a lease.
const removedToken = 0

// Granted implements proxy.WaitEnder.
func (w *waitEnder) Granted(t *proxy.Ticket, g proxy.Grant) (simba.Outcome, error) {
	b := (*Backend)(w)
	if b.ctx.Err() != nil {
		return simba.Outcome{}, simba.ErrStopped
	}
	l := waitStateOf(t).lease
	if g.Token != removedToken && l.token == g.Token {
		if o, err := granted(simba.StatusAcquired, l); err == nil {
			return o, nil
		}
	}
	return b.endWait(t, func(m *mutexState, s row) simba.Outcome {
		if g.Token != removedToken && s.live && s.owner == t.Request.Contender && s.token == g.Token {
			return b.outcome(m, simba.StatusAcquired, s.owner, s)
		}
		return b.outcome(m, simba.StatusTimeout, t.Request.Contender, s)
	})
}

// Reacquire implements proxy.WaitEnder.
func (w *waitEnder) Reacquire(t *proxy.Ticket) (simba.Outcome, simba.Ticket, error) {
	r := t.Request
	r.Waiter = waitStateOf(t).Waiter
	return (*Backend)(w).Acquire(context.Background(), r)
}

// Replaced implements proxy.WaitEnder.
func (w *waitEnder) Replaced(t *proxy.Ticket) (simba.Outcome, error) {
	b := (*Backend)(w)
	return b.endWait(t, func(m *mutexState, s row) simba.Outcome {
		return b.outcome(m, simba.StatusQueued, t.Request.Contender, s)
	})
}

// Leave implements proxy.WaitEnder.
func (w *waitEnder) Leave(t *proxy.Ticket, why simba.EndReason) (simba.Outcome, error) {
	b, contender := (*Backend)(w), t.Request.Contender
	b.dequeue(t, why)
	return b.endWait(t, func(m *mutexState, s row) simba.Outcome {
		switch {
		case s.live && s.owner == contender && why != simba.EndGone:
			return b.outcome(m, simba.StatusAcquired, contender, s)
		case why == simba.EndGone:
			return b.outcome(m, simba.StatusQueued, contender, s)
		}
		return b.outcome(m, simba.StatusTimeout, contender, s)
	})
}

// endWait reads the row of a wait that has ended, and calls decide for the outcome. It holds
// m.lock, so no handoff is in progress: the last one has reached this waiter or another one.
func (b *Backend) endWait(t *proxy.Ticket, decide func(*mutexState, row) simba.Outcome) (o simba.Outcome, err error) {
	m := b.ref(t.Request.Mutex)
	defer b.unref(m)
	ctx, done, err := b.begin(context.Background())
	if err != nil {
		return o, err
	}
	defer done()
	if err := m.lock.lock(ctx, false); err != nil {
		return o, b.fail(err)
	}
	defer m.lock.unlock()
	s, err := b.refresh(ctx, m, false)
	if err == nil {
		o = decide(m, s)
	}
	return o, b.fail(err)
}

// dequeue removes the queue entry of a wait that has ended. If the connection broke, the waiter
// becomes a polling one instead. If the contender waits on another connection by now, dequeue keeps
// the entry.
func (b *Backend) dequeue(t *proxy.Ticket, why simba.EndReason) {
	contender := t.Request.Contender
	m := b.ref(t.Request.Mutex)
	defer b.unref(m)
	if why == simba.EndGone {
		b.mu.Lock()
		if e := m.index[contender]; e != nil {
			e.notifiedAt, e.expiresAt = 0, time.Now().Add(b.QueueGrace())
		}
		b.mu.Unlock()
		return
	}
	if !b.removeUnlessBlocked(m, contender) {
		return
	}
	reason := "left"
	if why == simba.EndTimeout {
		reason = "timeout"
	}
	b.eventLog.Announce(simba.Event{Kind: simba.EventLeft, Mutex: m.mutex, Owner: contender, Reason: reason})
}

// HandOff implements proxy.WaitEnder.
func (w *waitEnder) HandOff(t *proxy.Ticket, g proxy.Grant) error {
	b, granted := (*Backend)(w), waitStateOf(t).lease
	if g.Token == removedToken || granted.token != g.Token || granted.at == 0 {
		return nil // the contender has the lease from another request
	}
	m := b.ref(t.Request.Mutex)
	defer b.unref(m)
	ctx, done, err := b.begin(context.Background())
	if err != nil {
		return err
	}
	defer done()
	// If this request fails, a refresh hands off the mutex.
	end := granted.at + (granted.ttl + granted.transition).Milliseconds()
	b.addOrphan(m, orphan{owner: granted.owner, at: granted.at, deadline: end})
	if err := m.lock.lock(ctx, false); err != nil {
		return b.fail(err)
	}
	defer m.lock.unlock()
	_, _, err = b.handOff(ctx, m, handoff{
		from: holder{owner: granted.owner, token: granted.token, at: granted.at}, kind: simba.EventReleased, reason: "waiter gone",
	})
	if err == nil {
		b.dropOrphan(m, granted.owner, granted.at)
	}
	return b.fail(err)
}
