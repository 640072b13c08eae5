package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// leaseOf returns the answer for a lease whose windows begin at since.
func leaseOf(token uint64, since time.Time, begun bool) answer {
	return answer{Status: statusLease, Token: token, Mark: since.UnixNano(), Begun: begun, since: since}
}

// give sets what a step sets in a lease, and returns what the step has done.
func (a answer) give(l *proxy.Lease) proxy.Taking {
	if a.Status != statusLease {
		return proxy.Held
	}
	l.Token, l.Mark, l.Since, l.Elsewhere = a.Token, a.Mark, a.since, a.elsewhere
	if a.Begun {
		return proxy.Granted
	}
	return proxy.Renewed
}

// mark returns the proxy.State.Mark of an owner's lease.
func (n *entry) mark() int64 { return n.since.UnixNano() }

// Take implements proxy.Store. It acquires a free mutex in one round trip. If the session ends meanwhile,
// and the next one has a shorter timeout, Take refuses a lease that has become too long.
func (st *store) Take(ctx context.Context, name string, l *proxy.Lease) (proxy.Taking, proxy.State, error) {
	w, lease, longest := *l, l.TTL+l.Transition, max(st.longestLease(), st.options.SessionTimeout/2)
	a, err := step(ctx, st, name, func(ctx context.Context, s *session, m *mutex) (a answer, err error) {
		if a, ok := answerOf(ctx, string(opAcquire)); ok {
			return a, nil
		}
		n, err := st.entryOf(ctx, m, w.Owner)
		if n == nil && err == nil && lease > s.negotiated()/2 && lease <= longest {
			err = errTooLong
		}
		if n == nil && err == nil {
			if a, err = st.enqueue(ctx, s, m, w); errors.Is(err, errSessionOver) && w.Queueing == proxy.Blocks { // only a wait goes on
				err = errChanged
			}
		}
		if n == nil || err != nil {
			return a, err
		}
		a, names, err := st.takeEntry(ctx, m, n, w, nil)
		if err != nil || a.Status == statusLease {
			return a, err
		}
		return st.stayQueued(ctx, m, n, names, w)
	})
	if err != nil {
		return proxy.Held, a.state, err
	}
	return a.give(l), a.state, nil
}

// takeEntry renews an owner's lease, or makes the contender of a first node the owner. Otherwise it
// returns an answer without a Status, and the nodes. It lists them without the lock: a node that was
// the first is still the first. The windows begin when it has the lock, since an older request that
// gets the lock later must not shorten the lease. r is the request of another server, nil = none.
func (st *store) takeEntry(ctx context.Context, m *mutex, n *entry, w proxy.Lease, r *answering) (a answer, names []string, err error) {
	begun := n.kind != kindOwner
	if begun {
		m.apart(func() { names, err = n.s.children(ctx, m.name) })
		switch i := slices.Index(names, n.child); {
		case err != nil:
			return a, nil, err
		case !m.has(n) || n.kind == kindOwner:
			return a, nil, errChanged
		case i < 0:
			st.forgetDeleted(m, n)
			return a, nil, errChanged
		case i > 0:
			return a, names, nil
		}
	}
	w.Since = time.Now()
	a = leaseOf(n.token, w.Since, begun)
	if r != nil {
		r.answer = a
	}
	return a, nil, st.grant(ctx, m, n, w, r)
}

// grant makes a waiter the owner whose node is the first, or renews the owner's lease. For a blocked
// waiter of this server it changes no node, since other servers see the owner already. Only this
// server deletes the node, and the session lives until the end of the lease: if no write has confirmed
// that lately, grant makes one.
func (st *store) grant(ctx context.Context, m *mutex, n *entry, w proxy.Lease, r *answering) error {
	if n.kind != kindBlocked || r != nil {
		return st.renew(ctx, m, n, w, r)
	}
	if time.Until(n.s.giveUpAt()) < n.s.negotiated()/2 {
		if err := n.s.barrier(n.s.ctx); err != nil {
			return err
		}
	}
	n.state = st.ownerOf(w)
	n.unwritten = true
	st.arm(m, n, nil)
	return nil
}

// enqueue creates a node for a contender that has none here. If it has one at another server, that
// server is asked.
func (st *store) enqueue(ctx context.Context, s *session, m *mutex, w proxy.Lease) (a answer, err error) {
	for _, o := range m.entries {
		if w.Queueing == proxy.AsItIs && o.kind == kindOwner && o.isDecided() && !o.over() && o.s == s { // needs no node
			return answer{state: st.headOf(m, o).state()}, nil
		}
	}
	n, child, names, err := st.create(ctx, s, m, w)
	if child == "" {
		names, failed := s.children(ctx, m.name)
		if other := older(names, w.Owner, s.tag); failed == nil && other != "" && other == names[0] {
			return st.ask(ctx, s, m, guidOf(other), string(opAcquire), asking(opAcquire, w)) // a renewal needs no new node
		}
		return a, err
	}
	n.child = child
	for pauses := 0; err == nil || errors.Is(err, errChanged); {
		if err != nil {
			if names, err = s.children(s.ctx, m.name); err != nil {
				break
			}
		}
		at := slices.Index(names, child)
		if at < 0 {
			st.forgetDeleted(m, n)
			return a, errChanged
		}
		other := older(names[:at], w.Owner, s.tag)
		n.ahead = s.latch(m.name, names[0])
		switch {
		case ctx.Err() != nil: // the client may have left
			err = errNoAnswer
		case at == 0:
			if n.ahead = ""; n.kind != kindOwner {
				err = st.grant(ctx, m, n, w, nil)
			}
			if err == nil {
				st.arm(m, n, nil)
				return leaseOf(n.token, w.Since, true), nil
			}
		case other != "" && (other == names[0] || w.Queueing != proxy.AsItIs):
			if err = st.remove(s.ctx, m, n, nil); err == nil {
				return st.ask(ctx, s, m, guidOf(other), string(opAcquire), asking(opAcquire, w))
			}
		case n.kind != kindBlocked && pauses < maxPauses && st.endsSoon(ctx, s, m, names[0]):
			n.child = ""
			m.apart(func() { proxy.Sleep(ctx, changedPause, nil) })
			n.child = child
			if pauses, err = pauses+1, errChanged; !m.has(n) {
				return a, errSessionOver
			}
		case w.Queueing == proxy.AsItIs:
			if err = st.remove(s.ctx, m, n, nil); err == nil {
				h, err := st.head(ctx, s, m, slices.Delete(names, at, at+1))
				return answer{state: h.state()}, err
			}
		default:
			n.ahead = ""
			if a, err = st.stayQueued(ctx, m, n, names, w); err == nil {
				return a, nil
			}
		}
	}
	// The contender's next request must not find the entry, which may not be the first.
	n.doomed, n.ahead = true, ""
	if failed := st.remove(n.s.ctx, m, n, nil); failed != nil && m.has(n) {
		st.arm(m, n, failed)
	}
	return a, err
}

// older looks for a latch node that another session created for the contender; "" = none.
func older(names []string, contender string, own tag) string {
	mark := protected + contenderMark(contender)
	i := slices.IndexFunc(names, func(child string) bool { return strings.HasPrefix(child, mark) && guidOf(child).tag() != own })
	if i < 0 {
		return ""
	}
	return names[i]
}

// maxPauses bounds how often a step looks whether the first node is gone.
const maxPauses = 20

// endsSoon reports whether the first node may be about to be deleted: its step has yet to decide,
// its lease has ended, or its polling waiter may be unreachable.
func (st *store) endsSoon(ctx context.Context, s *session, m *mutex, child string) bool {
	if n := m.at(child); n != nil {
		return !n.isDecided() || n.over()
	}
	h, err := st.readNode(ctx, s, m.name, child)
	return err == nil && (h == nil || h.Kind == kindPolling)
}

// stayQueued keeps a queue entry, and records whether its contender is blocked or polls.
func (st *store) stayQueued(ctx context.Context, m *mutex, n *entry, names []string, w proxy.Lease) (a answer, err error) {
	switch {
	case w.Queueing == proxy.Blocks && (n.kind != kindBlocked || n.ttl != w.TTL || n.transition != w.Transition):
		err = st.write(ctx, m, n, nil, func(s *state) { s.kind, s.ttl, s.transition = kindBlocked, w.TTL, w.Transition })
	case w.Queueing == proxy.Polls && n.kind != kindPolling:
		err = st.demote(ctx, m, n, names[0])
	}
	if err == nil && w.Queueing != proxy.Blocks {
		var h head
		h, err = st.head(ctx, n.s, m, names)
		if a.state = h.state(); err == nil && a.state.Next == n.contender {
			err = errChanged
		}
	}
	return a, err
}

// Renew implements proxy.Store. It costs one round trip at the server that granted the lease.
func (st *store) Renew(ctx context.Context, name string, l *proxy.Lease) (ok bool, err error) {
	w := *l
	a, err := step(ctx, st, name, func(ctx context.Context, s *session, m *mutex) (a answer, err error) {
		if a, ok := answerOf(ctx, string(opGuard)); ok {
			return a, nil
		}
		n, err := st.entryOf(ctx, m, w.Owner)
		if err != nil {
			return a, err
		}
		if n != nil && n.kind == kindOwner && (w.Token == 0 || w.Token == n.token) {
			w.Mark = n.acquired
			a, _, err = st.takeEntry(ctx, m, n, w, nil)
			return a, err
		}
		m.apart(func() { err = s.barrier(ctx) }) // the answer that there is no such tenure needs a majority, too
		if err != nil {
			return a, err
		}
		h, err := st.inspect(ctx, s, m, true)
		if err != nil || !h.owned() || h.bare || h.Contender != w.Owner || w.Token != 0 && w.Token != h.token {
			return a, err
		}
		return st.ask(ctx, s, m, guidOf(h.child), string(opGuard), asking(opGuard, w))
	})
	return err == nil && a.give(l) == proxy.Renewed, err
}

// Pass implements proxy.Store. It refuses to end the leadership of a JVM's LeaderLatch. A latch
// (Curator 5.4) does not watch its own node, so there would be two leaders.
func (st *store) Pass(ctx context.Context, name string, from proxy.From, to *proxy.Lease) (uint64, bool, error) {
	if to != nil {
		return st.begin(ctx, name, to)
	}
	const notEnded = -1
	left, err := step(ctx, st, name, func(ctx context.Context, s *session, m *mutex) (int32, error) {
		n, err := st.entryOf(ctx, m, from.Owner)
		if err != nil {
			return notEnded, err
		}
		if n != nil && n.kind == kindOwner {
			if n.token != from.Token || from.Mark != 0 && from.Mark != n.mark() || from.Acquired != 0 && from.Acquired != n.acquired {
				return notEnded, nil
			}
			err = st.remove(ctx, m, n, nil)
			return m.left, err
		}
		h, err := st.inspect(ctx, s, m, true)
		switch {
		case err != nil || !h.owned() || h.Contender != from.Owner || h.token != from.Token:
			return notEnded, err
		case h.bare:
			return notEnded, fmt.Errorf("the owner %s is a JVM's LeaderLatch, which would not notice; stop its process instead: %w", h.Contender, simba.ErrNotServed)
		}
		_, err = st.ask(ctx, s, m, guidOf(h.child), string(opRelease), request{Op: opRelease, Contender: from.Owner, Token: from.Token, Mark: from.Mark, Acquired: from.Acquired})
		return notEnded, err
	})
	return uint64(max(left, 0)), err == nil && left != notEnded, err
}

// begin begins the tenure of a waiter of this server, if a Read has shown that its node is the first.
func (st *store) begin(ctx context.Context, name string, to *proxy.Lease) (uint64, bool, error) {
	to.Mark = to.Since.UnixNano()
	w := *to
	a, err := step(ctx, st, name, func(ctx context.Context, s *session, m *mutex) (a answer, err error) {
		n := m.entries[w.Owner]
		if n == nil || !n.first || n.kind == kindOwner {
			return a, nil
		}
		return leaseOf(n.token, w.Since, true), st.grant(ctx, m, n, w, nil)
	})
	return 0, err == nil && a.give(to) == proxy.Granted, err
}

// Leave implements proxy.Queue.
func (st *store) Leave(ctx context.Context, name, contender string, everywhere bool) error {
	_, err := step(ctx, st, name, func(ctx context.Context, s *session, m *mutex) (none struct{}, err error) {
		n, err := st.entryOf(ctx, m, contender)
		switch {
		case err != nil || n != nil && n.kind == kindOwner || n == nil && !everywhere:
			return none, err
		case n != nil:
			return none, st.remove(ctx, m, n, nil)
		}
		h, err := st.inspect(ctx, s, m, true)
		for _, child := range h.names {
			if err == nil && older([]string{child}, contender, s.tag) != "" {
				_, err = st.ask(ctx, s, m, guidOf(child), string(opLeave)+child, request{Op: opLeave, Contender: contender})
			}
		}
		return none, err
	})
	return err
}

// Unblock implements proxy.Queue.
func (st *store) Unblock(ctx context.Context, name, contender string) error {
	_, err := step(ctx, st, name, func(ctx context.Context, s *session, m *mutex) (none struct{}, err error) {
		n, err := st.entryOf(ctx, m, contender)
		if err != nil || n == nil || n.kind != kindBlocked {
			return none, err
		}
		names, err := n.s.children(ctx, m.name)
		switch i := slices.Index(names, n.child); {
		case err != nil:
			return none, err
		case i < 0:
			st.forgetDeleted(m, n)
			return none, nil
		case i == 0:
			return none, st.remove(ctx, m, n, nil)
		}
		return none, st.demote(ctx, m, n, names[0])
	})
	return err
}
