package zookeeper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Acquire implements simba.Backend. It acquires a free mutex in one round trip.
func (b *Backend) Acquire(ctx context.Context, r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
	var t *proxy.Ticket
	if r.Waiter != nil {
		t = b.Waiters.Enter(r)
	}
	out, err := with(ctx, b, r.Mutex, func(ctx context.Context, s *session, m *mutex) (simba.Outcome, error) {
		return b.acquire(ctx, s, m, r, t)
	})
	switch {
	case t == nil:
		return out, nil, err
	case err == nil && out.Status == simba.StatusWaiting:
		return out, t, nil
	case !t.Withdraw(): // the ticket was granted or replaced meanwhile; End returns the outcome
		return simba.Outcome{Status: simba.StatusWaiting}, t, nil
	case err != nil:
		b.tendSoon(r.Mutex) // no connection is blocked on the entry
	}
	return out, nil, err
}

// acquire grants, renews or enqueues. t is the ticket of r.Waiter, nil without a Waiter.
func (b *Backend) acquire(ctx context.Context, s *session, m *mutex, r simba.AcquireRequest, t *proxy.Ticket) (out simba.Outcome, err error) {
	if t != nil && b.Waiters.Find(r.Mutex, r.Contender) != t {
		return simba.Outcome{Status: simba.StatusWaiting}, nil
	}
	n, err := b.entryOf(ctx, m, r.Contender)
	switch {
	case err != nil:
	case n == nil:
		out, err = b.enqueue(ctx, s, m, r, t)
	default:
		var status simba.Status
		var names []string
		if status, names, err = b.take(ctx, m, n, b.windowsOf(r), nil); status == simba.StatusQueued {
			out, err = b.stayQueued(ctx, m, n, names, r, t)
		} else if err == nil {
			out = n.outcome(status)
		}
	}
	if errors.Is(err, errSessionOver) && t != nil { // only a wait goes on
		err = errChanged
	}
	return out, err
}

// take renews an owner's lease, or makes the contender of a first node the owner. Otherwise it
// returns StatusQueued and the nodes. It lists them without the lock: a node that was the first is
// still the first, and the watcher serves one that has become the first meanwhile.
func (b *Backend) take(ctx context.Context, m *mutex, n *entry, w windows, a *answering) (status simba.Status, names []string, err error) {
	status = simba.StatusRenewed
	if n.kind != kindOwner {
		m.apart(func() { names, err = n.s.children(ctx, m.name) })
		switch i := slices.Index(names, n.child); {
		case err != nil:
			return 0, nil, err
		case !m.has(n) || n.kind == kindOwner:
			return 0, nil, errChanged
		case i < 0:
			b.forgetDeleted(m, n)
			return 0, nil, errChanged
		case i > 0:
			return simba.StatusQueued, names, nil
		case n.kind == kindBlocked:
			return 0, nil, orChanged(b.grant(m, n, reasonHandoff))
		}
		status = simba.StatusAcquired
	}
	if a != nil {
		a.answer = answer{Status: status.String(), Token: n.token}
	}
	return status, nil, b.renew(ctx, m, n, w, a)
}

// orChanged returns errChanged if there is no other error.
func orChanged(err error) error {
	if err == nil {
		return errChanged
	}
	return err
}

// enqueue creates a node for a contender that has none here. If it has one at another server,
// enqueue deletes the new one again, and asks that server.
func (b *Backend) enqueue(ctx context.Context, s *session, m *mutex, r simba.AcquireRequest, t *proxy.Ticket) (out simba.Outcome, err error) {
	if owner := m.owner(); r.NoQueue && owner != nil { // refuse without a node
		h := b.headOf(owner)
		return h.outcome(simba.StatusBusy), nil
	}
	k := kindOwner
	if t != nil {
		k = kindBlocked
	}
	n, child, names, err := b.create(ctx, s, m, r, k)
	if child == "" {
		if lasting(err) || errors.Is(err, errQuotaExceeded) { // a renewal needs no new node below the mutex
			if names, failed := s.children(ctx, r.Mutex); failed == nil && older(names, r.Contender, s.tag) != "" {
				return b.acquireElsewhere(ctx, s, m, r, t, older(names, r.Contender, s.tag))
			}
		}
		return out, err
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
			b.forgetDeleted(m, n)
			return out, errChanged
		}
		other := older(names[:at], r.Contender, s.tag)
		n.ahead = s.latch(m.name, names[0])
		switch {
		case ctx.Err() != nil: // the client may have left
			err = errNoAnswer
		case at == 0:
			n.ahead, n.onlyOwnAhead = "", true
			if t != nil { // the end of its wait returns the outcome
				return simba.Outcome{Status: simba.StatusWaiting}, b.grant(m, n, "")
			}
			n.renewed = true
			b.record(m, n.event(simba.EventAcquired, ""))
			return n.outcome(simba.StatusAcquired), nil
		case other != "":
			if err = b.remove(s.ctx, m, n, simba.Event{}, nil); err == nil {
				return b.acquireElsewhere(ctx, s, m, r, t, other)
			}
		case t == nil && pauses < maxPauses && b.endsSoon(ctx, s, m, names[0]):
			n.child = ""
			m.apart(func() { proxy.Sleep(ctx, changedPause, nil) })
			n.child = child
			if pauses, err = pauses+1, errChanged; !m.has(n) {
				return out, errSessionOver
			}
		case r.NoQueue:
			if err = b.remove(s.ctx, m, n, simba.Event{}, nil); err == nil {
				return b.refuse(ctx, s, m, r, slices.Delete(names, at, at+1), nil)
			}
		default:
			if t == nil {
				err = b.demote(s.ctx, m, n)
			}
			if err == nil {
				n.ahead = ""
				m.markOwn(names)
				b.record(m, n.event(simba.EventQueued, ""))
				if m.at(names[0]) == nil {
					b.watch(m).wake() // the node may have become the first before others could see the entry
				}
				return b.stayQueued(ctx, m, n, names, r, t)
			}
		}
	}
	// The contender's next request must not find the entry, which may not be the first.
	n.doomed, n.ahead = true, ""
	b.retryLater(m, n, b.tend(m, n))
	return out, err
}

// older looks for a latch node that another session created for the contender; "" = none.
func older(names []string, contender string, own tag) string {
	mark := protected + contenderMark(contender)
	i := slices.IndexFunc(names, func(child string) bool { return strings.HasPrefix(child, mark) && !guidOf(child).tagged(own) })
	if i < 0 {
		return ""
	}
	return names[i]
}

// maxPauses bounds how often a request looks whether the first node is gone.
const maxPauses = 50

// endsSoon reports whether the first node is about to be deleted: its lease has ended, or its polling
// waiter is idle, or its request has yet to decide. If it is one of this server, endsSoon deletes it.
func (b *Backend) endsSoon(ctx context.Context, s *session, m *mutex, child string) bool {
	n := m.at(child)
	if n == nil {
		h, err := b.readNode(ctx, s, m.name, child)
		return err == nil && (h == nil || h.idle)
	}
	switch {
	case !n.isDecided():
		return true
	case n.over():
		return b.remove(ctx, m, n, n.event(simba.EventExpired, ""), nil) == nil
	case n.idle:
		return b.skip(m, n, false) == nil
	}
	return false
}

// stayQueued keeps a queue entry, and records whether its contender is blocked or polls. A poll does
// not change a blocked request of the same contender.
func (b *Backend) stayQueued(ctx context.Context, m *mutex, n *entry, names []string, r simba.AcquireRequest, t *proxy.Ticket) (out simba.Outcome, err error) {
	b.watch(m)
	w := b.windowsOf(r)
	if t != nil {
		if n.kind != kindBlocked || n.windows != w {
			err = b.write(ctx, m, n, nil, func(s *state) { *s = state{kind: kindBlocked, windows: w} })
		}
		return simba.Outcome{Status: simba.StatusWaiting}, err
	}
	if n.kind == kindBlocked && b.Waiters.Find(r.Mutex, r.Contender) == nil && !r.NoQueue {
		if err = b.unblock(m, n); err != nil {
			return out, err
		}
	}
	out, err = b.refuse(ctx, n.s, m, r, names, n)
	if err == nil && !r.NoQueue {
		out.Status = simba.StatusQueued
		b.keepPolling(n, w, out.Transition, false)
	}
	return out, err
}

// keepPolling extends the queue entry of a polling waiter, to a queue grace after the lease that it
// has seen.
func (b *Backend) keepPolling(n *entry, w windows, left time.Duration, elsewhere bool) {
	if n.kind == kindPolling {
		n.windows, n.elsewhere, n.expiresAt = w, n.elsewhere || elsewhere, time.Now().Add(left+b.QueueGrace())
	}
}

// refuse returns the outcome of a NOQUEUE request. n is the contender's entry here; nil = none. If
// the contender may be the owner, refuse returns errChanged, since an owner is never refused.
func (b *Backend) refuse(ctx context.Context, s *session, m *mutex, r simba.AcquireRequest, names []string, n *entry) (out simba.Outcome, err error) {
	h, err := b.head(ctx, s, m, names)
	out = h.outcome(simba.StatusBusy)
	if n != nil {
		out.Position = h.position(n.child)
	}
	if err == nil && (n != nil && (h.child == n.child || out.Position == 0) || h.owned && !h.bare && h.contender == r.Contender) {
		err = errChanged
	}
	return out, err
}

// acquireElsewhere asks the server that created a node of the contender. If that is a waiter's, and
// the contender waits here now, it gets a new node here.
func (b *Backend) acquireElsewhere(ctx context.Context, s *session, m *mutex, r simba.AcquireRequest, t *proxy.Ticket, child string) (out simba.Outcome, err error) {
	asked := time.Now()
	a, err := b.ask(ctx, s, m, guidOf(child), request{
		Op: opAcquire, Contender: r.Contender, TTL: r.TTL.Milliseconds(), Transition: r.Transition.Milliseconds(),
		Binding: proxy.Binding(b.id, r.Session), Waits: t != nil,
	})
	switch {
	case err != nil:
		return out, err
	case a.Status != simba.StatusQueued.String():
		return leaseOutcome(a, r.Contender, asked, r.TTL, r.Transition)
	}
	h, err := b.inspect(ctx, s, m)
	out = h.outcome(simba.StatusQueued)
	if out.Position = h.position(child); err == nil && (h.child == child || out.Position == 0) {
		err = errChanged
	}
	if r.NoQueue {
		out.Status = simba.StatusBusy
	}
	return out, err
}

// errLate is returned when the lease ended before the answer arrived.
var errLate = errors.New("the answer arrived after the end of the lease")

// leaseOutcome returns the outcome for an owner's lease that another server has begun after asked.
func leaseOutcome(a answer, contender string, asked time.Time, ttl, transition time.Duration) (out simba.Outcome, err error) {
	passed := time.Since(asked)
	out = simba.Outcome{Status: simba.StatusRenewed, Owner: contender, Token: a.Token, TTL: max(0, ttl-passed), Transition: max(0, ttl+transition-passed)}
	if a.Status == simba.StatusAcquired.String() {
		out.Status = simba.StatusAcquired
	}
	if out.Transition == 0 {
		err = errLate
	}
	return out, err
}

func (b *Backend) windowsOf(r simba.AcquireRequest) windows {
	return windows{r.TTL, r.Transition, proxy.Binding(b.id, r.Session)}
}
