package proxy

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
)

// waitEnder implements WaitEnder for the waiters of an Engine.
type waitEnder Engine

// removedToken is the token of a Grant that removes a waiter from the queue without a lease.
const removedToken = 0

// lease returns the lease that the waiter of a ticket asks for, from now.
func (t *Ticket) lease() *Lease {
	return &Lease{Owner: t.Request.Contender, TTL: t.Request.TTL, Transition: t.Request.Transition, Since: time.Now()}
}

// Granted implements WaitEnder.
func (w *waitEnder) Granted(t *Ticket, g Grant) (simba.Outcome, error) {
	e := (*Engine)(w)
	if e.ctx.Err() != nil {
		return simba.Outcome{}, simba.ErrStopped
	}
	if g.Token != removedToken && !g.Confirm {
		l := t.lease()
		l.Token, l.Since = g.Token, g.Since
		if o, err := l.outcome(simba.StatusAcquired); err == nil {
			return o, nil
		}
	}
	return e.endWait(t, func(owns bool, s State) simba.Status {
		if owns && g.Token != removedToken && s.Token == g.Token {
			return simba.StatusAcquired
		}
		return simba.StatusTimeout
	})
}

// Reacquire implements WaitEnder.
func (w *waitEnder) Reacquire(t *Ticket) (simba.Outcome, simba.Ticket, error) {
	return (*Engine)(w).Acquire(context.Background(), t.Request)
}

// Replaced implements WaitEnder.
func (w *waitEnder) Replaced(t *Ticket) (simba.Outcome, error) {
	return (*Engine)(w).endWait(t, func(bool, State) simba.Status { return simba.StatusQueued })
}

// Leave implements WaitEnder.
func (w *waitEnder) Leave(t *Ticket, why simba.EndReason) (simba.Outcome, error) {
	e := (*Engine)(w)
	e.dequeue(t, why)
	return e.endWait(t, func(owns bool, _ State) simba.Status {
		switch {
		case why == simba.EndGone:
			return simba.StatusQueued
		case owns:
			return simba.StatusAcquired
		}
		return simba.StatusTimeout
	})
}

// endWait reads the mutex of a wait that has ended, and calls decide for the status. It holds
// m.lock, so no handoff is in progress: the last one has reached this waiter or another one.
func (e *Engine) endWait(t *Ticket, decide func(owns bool, s State) simba.Status) (o simba.Outcome, err error) {
	err = e.request(context.Background(), t.Request.Mutex, "", func(ctx context.Context, m *mutexState) error {
		sent := time.Now()
		s, err := e.refresh(ctx, m)
		if err != nil {
			return err
		}
		contender := t.Request.Contender
		o = e.outcome(m, decide(s.Live && s.Owner == contender, s), contender, s)
		if o.Status == simba.StatusAcquired {
			// The lease ran on while the reply was under way.
			l := Lease{TTL: o.TTL, Transition: o.Transition - o.TTL, Since: sent}
			o.TTL, o.Transition = l.left()
		}
		return nil
	})
	return o, err
}

// dequeue removes the queue entry of a wait that has ended. If the connection broke, the waiter
// becomes a polling one instead. If the contender waits on another connection by now, dequeue keeps
// the entry.
func (e *Engine) dequeue(t *Ticket, why simba.EndReason) {
	contender := t.Request.Contender
	m := e.ref(t.Request.Mutex)
	defer e.unref(m)
	if why == simba.EndGone {
		e.mu.Lock()
		defer e.mu.Unlock()
		if w := m.index[contender]; w != nil {
			w.notifiedAt, w.expiresAt = 0, time.Now().Add(e.QueueGrace())
		}
		return
	}
	if !e.removeUnlessBlocked(m, contender) {
		return
	}
	reason := "left"
	if why == simba.EndTimeout {
		reason = "timeout"
	}
	e.eventLog.Record(simba.Event{Kind: simba.EventLeft, Mutex: m.mutex, Owner: contender, Reason: reason})
}

// HandOff implements WaitEnder.
func (w *waitEnder) HandOff(t *Ticket, g Grant) error {
	e := (*Engine)(w)
	if g.Token == removedToken || g.Mark == 0 {
		return nil // the contender has the lease from another request
	}
	m := e.ref(t.Request.Mutex)
	defer e.unref(m)
	// If this request fails, a refresh hands off the mutex.
	l := Lease{Owner: t.Request.Contender, Token: g.Token, Mark: g.Mark}
	e.addOrphan(m, orphan{lease: l, gone: true})
	return e.request(context.Background(), m.mutex, "", func(ctx context.Context, m *mutexState) error {
		err := e.handOffFromGone(ctx, m, &l)
		if err == nil {
			e.dropOrphans(m, func(o orphan) bool { return o.gone && o.lease.Mark == l.Mark })
		}
		return err
	})
}
