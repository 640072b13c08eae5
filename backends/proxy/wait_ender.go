package proxy

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
)

// waitEnder implements WaitEnder for the waiters of an Engine.
type waitEnder struct{ *Engine }

// lease returns the lease that the waiter of a ticket asks for, from now.
func (t *Ticket) lease() *Lease {
	return &Lease{Owner: t.Request.Contender, TTL: t.Request.TTL, Transition: t.Request.Transition, Since: time.Now()}
}

// Granted implements WaitEnder.
func (e waitEnder) Granted(t *Ticket, g Grant) (simba.Outcome, error) {
	if e.Stopped() {
		return simba.Outcome{}, simba.ErrStopped
	}
	if g.Lease != nil {
		if o, err := g.Lease.outcome(simba.StatusAcquired); err == nil {
			return o, nil
		}
	}
	return e.endWait(t, func(owns bool, s State) simba.Status {
		if owns && g.Lease != nil && s.Token == g.Token {
			return simba.StatusAcquired
		}
		return simba.StatusTimeout
	})
}

// Reacquire implements WaitEnder.
func (e waitEnder) Reacquire(t *Ticket) (simba.Outcome, simba.Ticket, error) {
	return e.Acquire(context.Background(), t.Request)
}

// Replaced implements WaitEnder.
func (e waitEnder) Replaced(t *Ticket) (simba.Outcome, error) {
	return e.endWait(t, func(bool, State) simba.Status { return simba.StatusQueued })
}

// Leave implements WaitEnder.
func (e waitEnder) Leave(t *Ticket, why simba.EndReason) (simba.Outcome, error) {
	if e.queue == nil {
		e.dequeue(t, why)
	} else if err := e.endEntry(t, why); err != nil {
		return simba.Outcome{}, err
	}
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
		o = e.outcome(m, decide(s.Live && !s.Elsewhere && s.Owner == t.Request.Contender, s), t.Request.Contender, s)
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
	reason := "left"
	if why == simba.EndTimeout {
		reason = "timeout"
	}
	e.leave(m, contender, reason)
}

// HandOff implements WaitEnder.
func (e waitEnder) HandOff(t *Ticket, g Grant) error {
	if g.Lease == nil || g.Lease.Mark == 0 {
		return nil // the contender has the lease from another request, or has left the queue
	}
	m := e.ref(t.Request.Mutex)
	defer e.unref(m)
	e.addOrphans(m, orphan{lease: *g.Lease, gone: true})
	return e.request(context.Background(), m.mutex, "", e.refreshAndHandOff)
}
