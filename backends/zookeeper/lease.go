package zookeeper

import (
	"context"
	"fmt"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Guard implements simba.Backend. It costs one round trip at the server that granted the lease.
func (b *Backend) Guard(ctx context.Context, r simba.GuardRequest) (simba.Outcome, error) {
	return with(ctx, b, r.Mutex, func(ctx context.Context, s *session, m *mutex) (out simba.Outcome, err error) {
		n, err := b.entryOf(ctx, m, r.Contender)
		if err != nil {
			return out, err
		}
		if n != nil && n.kind == kindOwner && (r.Token == 0 || r.Token == n.token) {
			err = b.renew(ctx, m, n, windows{r.TTL, r.Transition, n.binding}, nil)
			if out = n.outcome(simba.StatusRenewed); err == nil && out.Transition == 0 {
				err = errLate
			}
			return out, err
		}
		m.apart(func() { err = s.barrier(ctx) }) // the reply "lost" needs a majority, too
		if err != nil {
			return out, err
		}
		h, err := b.inspect(ctx, s, m)
		if err != nil || !h.owned || h.bare || h.contender != r.Contender || r.Token != 0 && r.Token != h.token {
			return h.outcome(simba.StatusLost), err
		}
		asked := time.Now()
		a, err := b.ask(ctx, s, m, guidOf(h.child), request{
			Op: opGuard, Contender: r.Contender, TTL: r.TTL.Milliseconds(), Transition: r.Transition.Milliseconds(), Token: r.Token,
		})
		if err != nil {
			return out, err
		}
		return leaseOutcome(a, r.Contender, asked, r.TTL, r.Transition)
	})
}

// Release implements simba.Backend.
func (b *Backend) Release(ctx context.Context, r simba.ReleaseRequest) (bool, simba.Seq, error) {
	released, err := with(ctx, b, r.Mutex, func(ctx context.Context, s *session, m *mutex) (bool, error) {
		q := request{Op: opRelease, Contender: r.Contender, Token: r.Token, Binding: proxy.Binding(b.id, r.Session), Reason: r.Reason}
		n, err := b.entryOf(ctx, m, r.Contender)
		if err != nil {
			return false, err
		}
		if n != nil {
			return b.release(ctx, m, n, q, nil)
		}
		released, err := b.askAll(ctx, s, m, q)
		if err == nil && r.Token == 0 && r.Session == 0 {
			b.Waiters.Grant(r.Mutex, r.Contender, proxy.Grant{}) // ends its wait without a lease
		}
		return released, err
	})
	return released, 0, err
}

// release ends the tenure of an entry, or takes a waiter out of the queue. With a token or a binding
// it only ends the tenure that has them.
func (b *Backend) release(ctx context.Context, m *mutex, n *entry, q request, a *answering) (bool, error) {
	switch {
	case n.kind != kindOwner && (q.Token != 0 || q.Binding != ""), q.Binding != "" && q.Binding != n.binding, q.Token != 0 && q.Token != n.token:
		return false, nil
	case n.kind == kindOwner:
		return b.end(ctx, m, n, simba.EventReleased, q.Reason, a)
	}
	if err := b.grantIfFirst(ctx, m, n); err != nil {
		return false, err
	}
	err := b.remove(ctx, m, n, n.event(simba.EventLeft, "left"), a)
	if err == nil {
		b.Waiters.Grant(m.name, n.contender, proxy.Grant{})
	}
	return false, err
}

// end ends a tenure.
func (b *Backend) end(ctx context.Context, m *mutex, n *entry, kind simba.EventKind, reason string, a *answering) (bool, error) {
	if a != nil {
		a.answer.Status = statusReleased
	}
	err := b.remove(ctx, m, n, n.event(kind, reason), a)
	return err == nil, err
}

// grantIfFirst grants the mutex to a blocked waiter whose node is the first. Then it returns
// errChanged.
func (b *Backend) grantIfFirst(ctx context.Context, m *mutex, n *entry) error {
	if n.kind != kindBlocked {
		return nil
	}
	names, err := n.s.children(ctx, m.name)
	if err == nil && len(names) > 0 && names[0] == n.child {
		err = orChanged(b.grant(m, n, reasonHandoff))
	}
	return err
}

// Break implements simba.Backend. It refuses to end the leadership of a JVM's LeaderLatch. A latch
// (Curator 5.4) does not watch its own node, so there would be two leaders.
func (b *Backend) Break(ctx context.Context, name, reason string) (bool, simba.Seq, error) {
	broken, err := with(ctx, b, name, func(ctx context.Context, s *session, m *mutex) (bool, error) {
		h, err := b.inspect(ctx, s, m)
		n := m.at(h.child)
		switch {
		case err != nil || !h.owned:
			return false, err
		case h.bare:
			return false, fmt.Errorf("the owner %s is a JVM's LeaderLatch, which would not notice; stop its process instead: %w", h.contender, simba.ErrNotServed)
		case n == nil:
			a, err := b.ask(ctx, s, m, guidOf(h.child), request{Op: opBreak, Contender: h.contender, Reason: reason})
			return a.Status == statusReleased, err
		}
		return b.end(ctx, m, n, simba.EventBroken, reason, nil)
	})
	return broken, 0, err
}
