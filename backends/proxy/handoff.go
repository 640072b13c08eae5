package proxy

import (
	"context"
	"errors"
	"slices"

	"github.com/simba-resp/simba-resp"
)

// The reasons in the events of a tenure that was granted to a blocked waiter, and of one whose
// waiter did not receive it.
const (
	reasonHandoff = "handoff"
	reasonGone    = "waiter gone"
)

// handoff describes a handoff: from which state, and how the tenure ends.
type handoff struct {
	from      From
	kind      simba.EventKind // the event that ends the tenure
	reason    string
	requester *Ticket // the ticket whose Acquire runs this handoff; it needs no wake-up
}

// handOff hands a mutex off to the first reachable waiter, or frees it. The caller holds m.lock.
// done is false if the mutex was in another state than h.from. Otherwise the tenure in h.from has
// ended, or the free mutex was granted to a waiter, is reserved, or has no next waiter. Then state
// is the state as this server has left it.
//
// For a blocked waiter, one step ends the tenure and begins that of the waiter. If the waiter has
// disconnected, handOff hands the mutex off from it to the next waiter. For a Queue, handOff only ends
// the tenure. A refresh serves the next waiter (see serveNext).
func (e *Engine) handOff(ctx context.Context, m *mutexState, h handoff) (state State, done bool, err error) {
	from, kind, reason := h.from, h.kind, h.reason
	for {
		w, t := e.next(m, from)
		if e.queue != nil {
			t = nil
		}
		if from.Free() && t == nil {
			if w == nil {
				e.announceFree(m)
				return state, true, nil
			}
			if reserved := e.notify(m, w, from.Revision); reserved {
				return state, true, nil
			}
			continue
		}
		var to *Lease
		if t != nil {
			to = t.lease()
		}
		revision, ok, err := e.pass(ctx, m, from, to)
		if err != nil {
			e.noteUnknown(ctx, m, err, from, to, done)
			if t != nil && t == h.requester && t.Request.Session != 0 && to.Mark != 0 && !isNotDone(err) {
				e.bind(m.mutex, t.Request.Session, *to)
			}
			if done { // the first tenure has ended
				err = nil
			}
			return state, done, err
		}
		if !ok {
			return state, done, nil
		}
		done = true
		if !from.Free() {
			e.recordEnd(m, from, revision, kind, reason)
		}
		if e.queue != nil {
			if revision == 0 {
				e.announceFree(m)
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			m.stale = true
			return state, true, nil
		}
		if to == nil {
			state = State{Revision: revision}
			from = From{Revision: revision}
			continue
		}
		state = to.state()
		why := reasonHandoff
		if t == h.requester {
			why = ""
		}
		e.recordBegin(m, to, why)
		if e.deliver(m, t, to, t == h.requester) {
			return state, true, nil
		}
		from, kind, reason = to.from(), simba.EventReleased, reasonGone
	}
}

func (l *Lease) from() From { return From{Owner: l.Owner, Token: l.Token, Mark: l.Mark} }

// noteUnknown notes the orphans of a handoff that has failed with err. passed says that from is a
// waiter that has disconnected, since the handoff has passed the mutex on to it before.
func (e *Engine) noteUnknown(ctx context.Context, m *mutexState, err error, from From, to *Lease, passed bool) {
	var orphans []orphan
	if !isNotDone(err) && !errors.As(err, new(*Elsewhere)) {
		end, _ := ctx.Deadline()
		o := orphan{until: e.store.Horizon(end)}
		if to != nil {
			o.lease = *to
		}
		orphans = append(orphans, o)
	}
	if passed && !from.Free() {
		orphans = append(orphans, orphan{lease: Lease{Owner: from.Owner, Mark: from.Mark}, gone: true})
	}
	e.addOrphans(m, orphans...)
}

// deliver gives a lease to its waiter. requester is true if t is handoff.requester. deliver returns
// false if the waiter is gone.
func (e *Engine) deliver(m *mutexState, t *Ticket, l *Lease, requester bool) bool {
	if requester && t.Withdraw() {
		t.own = *l
		e.bind(m.mutex, t.Request.Session, *l)
		e.removeUnlessBlocked(m, l.Owner)
		return true
	}
	if e.wake(m, l) {
		return true
	}
	e.removeUnlessBlocked(m, l.Owner)
	return false
}

// wake gives the lease to its owner's waiter and removes the queue entry. It returns false if there
// is no waiter.
func (e *Engine) wake(m *mutexState, l *Lease) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.Waiters.Find(m.mutex, l.Owner)
	if t == nil {
		return false
	}
	if !t.Grant(Grant{Token: l.Token, Since: l.Since, Lease: l}) {
		return false
	}
	e.bindLocked(m.mutex, t.Request.Session, *l)
	if w := m.index[l.Owner]; w != nil {
		m.removeLocked(w)
	}
	return true
}

// wakeOwner is wake for a lease that the contender has by another request, here or through another
// server. So if the waiter is gone, the lease stays.
func (e *Engine) wakeOwner(m *mutexState, l Lease) {
	l.Mark = 0
	e.wake(m, &l)
}

// orphan is a step whose outcome is unknown, or a grant whose waiter is gone. A grant has taken
// effect if the store shows its owner and Mark. A step that frees the mutex has no owner. The
// server keeps an orphan until it can no longer take effect.
type orphan struct {
	lease Lease
	gone  bool  // the waiter is gone
	until int64 // on the store's clock; after it, the step takes no effect; 0 = it has, if it can
}

// addOrphans records orphans and schedules a refresh.
func (e *Engine) addOrphans(m *mutexState, orphans ...orphan) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m.orphans = append(m.orphans, orphans...)
	m.stale = true
}

// reconcile compares the orphans with a settled state. If the state has the lease of an orphan,
// reconcile wakes the waiter, or hands off the mutex if the waiter is gone. It reports whether it
// changed the state. The caller holds m.lock.
func (e *Engine) reconcile(ctx context.Context, m *mutexState, s State) (changed bool, err error) {
	e.mu.Lock()
	orphans := m.orphans
	m.orphans = nil
	e.mu.Unlock()
	var rest []orphan
	for _, o := range orphans {
		l := o.lease
		switch {
		case l.Owner != "" && s.Live && s.Owner == l.Owner && s.Mark == l.Mark:
			l.Token, l.Revision = s.Token, s.Revision
			e.recordBegin(m, &l, reasonHandoff)
			if !o.gone && e.wake(m, &l) {
				continue
			}
			changed = true
			if _, _, err = e.handOff(ctx, m, handoff{from: l.from(), kind: simba.EventReleased, reason: reasonGone}); err != nil {
				rest = append(rest, o)
			}
		case s.Now < o.until:
			rest = append(rest, o)
		}
	}
	e.mu.Lock()
	m.orphans = append(m.orphans, rest...)
	e.mu.Unlock()
	return changed, err
}

// dropOrphansOf removes the orphans of a contender whose request is answered, with its lease or
// with an error.
func (e *Engine) dropOrphansOf(m *mutexState, contender string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m.orphans = slices.DeleteFunc(m.orphans, func(o orphan) bool { return o.lease.Owner == contender })
}
