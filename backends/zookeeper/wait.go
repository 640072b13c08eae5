package zookeeper

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// waitEnder is the proxy.WaitEnder of Backend.Waiters. The entry of a waiter is one of this server.
type waitEnder struct{ *Backend }

// end ends a wait. Without an outcome of f, the outcome is that of a contender without a lease, unless
// it owns the mutex with the token; 0 = none.
func (b waitEnder) end(t *proxy.Ticket, status simba.Status, token uint64, f func(context.Context, *mutex, *entry) (simba.Outcome, error)) (simba.Outcome, error) {
	r := t.Request
	out, err := with(context.Background(), b.Backend, r.Mutex, func(ctx context.Context, s *session, m *mutex) (simba.Outcome, error) {
		n, err := b.entryOf(ctx, m, r.Contender)
		if err != nil {
			return simba.Outcome{}, err
		}
		if n != nil {
			if out, err := f(ctx, m, n); out.Status != 0 || err != nil {
				return out, err
			}
		}
		h, err := b.inspect(ctx, s, m)
		out := h.outcome(status)
		if h.owned && h.contender == r.Contender && h.token == token { // another server has the entry
			out.Status = simba.StatusAcquired
		}
		out.Position = h.position(older(h.names, r.Contender, ""))
		return out, err
	})
	if err != nil { // the node may remain, but no connection is blocked on it
		b.tendSoon(r.Mutex)
	}
	return out, err
}

// Granted implements proxy.WaitEnder. A grant without a token means that the contender was removed
// from the queue.
func (b waitEnder) Granted(t *proxy.Ticket, g proxy.Grant) (simba.Outcome, error) {
	return b.end(t, simba.StatusTimeout, g.Token, func(_ context.Context, _ *mutex, n *entry) (out simba.Outcome, _ error) {
		if n.kind == kindOwner && n.token == g.Token {
			out = n.outcome(simba.StatusAcquired)
		}
		return out, nil
	})
}

// Reacquire implements proxy.WaitEnder.
func (b waitEnder) Reacquire(t *proxy.Ticket) (simba.Outcome, simba.Ticket, error) {
	return b.Acquire(context.Background(), t.Request)
}

// Replaced implements proxy.WaitEnder.
func (b waitEnder) Replaced(t *proxy.Ticket) (simba.Outcome, error) {
	return b.end(t, simba.StatusQueued, 0, func(context.Context, *mutex, *entry) (out simba.Outcome, _ error) { return out, nil })
}

// Leave implements proxy.WaitEnder.
func (b waitEnder) Leave(t *proxy.Ticket, why simba.EndReason) (simba.Outcome, error) {
	reason, status := "left", simba.StatusTimeout
	switch why {
	case simba.EndTimeout:
		reason = "timeout"
	case simba.EndGone:
		status = simba.StatusQueued
	}
	return b.end(t, status, 0, func(ctx context.Context, m *mutex, n *entry) (out simba.Outcome, err error) {
		switch {
		case b.Waiters.Find(m.name, n.contender) != nil: // it waits on another connection
		case n.kind == kindOwner && why != simba.EndGone:
			out = n.outcome(simba.StatusAcquired)
		case n.kind == kindBlocked && why == simba.EndGone:
			err = b.unblock(m, n)
		case n.kind != kindOwner && why != simba.EndGone:
			err = b.remove(ctx, m, n, n.event(simba.EventLeft, reason), nil)
		}
		return out, err
	})
}

// HandOff implements proxy.WaitEnder.
func (b waitEnder) HandOff(t *proxy.Ticket, g proxy.Grant) error {
	if g.Token == 0 {
		return nil
	}
	_, err := b.end(t, simba.StatusTimeout, 0, func(ctx context.Context, m *mutex, n *entry) (out simba.Outcome, err error) {
		out.Status = simba.StatusTimeout
		if n.kind == kindOwner && n.token == g.Token && !n.renewed {
			err = b.remove(ctx, m, n, n.event(simba.EventReleased, "waiter gone"), nil)
		}
		return out, err
	})
	return err
}

func (b *Backend) tryRejoin(t *proxy.Ticket) (done bool) {
	r := t.Request
	_, err := with(b.Stopping, b, r.Mutex, func(ctx context.Context, s *session, m *mutex) (struct{}, error) {
		if m.entries[r.Contender] != nil {
			return struct{}{}, nil
		}
		out, err := b.acquire(ctx, s, m, r, t)
		if err != nil || out.Status == simba.StatusWaiting {
			b.failWaits(r.Mutex, err)
			return struct{}{}, err
		}
		t.Grant(proxy.Grant{Token: out.Token, Since: time.Now().Add(out.Transition - r.TTL - r.Transition)}) // by another server
		return struct{}{}, err
	})
	return err == nil
}
