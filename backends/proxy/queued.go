package proxy

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Queue is a Store that has one queue for the waiters of all servers. An entry belongs to the
// server that made it, and ends with it. The Engine has an entry for each waiter of this server.
//
// A step that another server has to make returns an *Elsewhere. The rules of Store hold, with these
// additions:
//
//   - Take also queues the contender, see Queueing. For Held it returns the state with the
//     contender in the queue. It never grants a free mutex to a contender that is not the next. If
//     the contender waits at another server and is the next, Take grants it the free mutex.
//     Otherwise Take ends that entry and makes a new one here, unless Queueing is AsItIs.
//   - Pass only ends a tenure (to is nil), or only begins one. It begins none for a contender that
//     is not the next, or that has no entry here. It returns the revision 0 if nobody waits.
//   - Read sets the fields of a Queue in State. A tenure stays Live until its server has ended it.
//   - Watch also calls Hooks.Changed when the next waiter changes.
type Queue interface {
	Store
	// Leave is a step that ends a contender's queue entry here. It does nothing to an owner, or if there
	// is no entry. everywhere = if there is none here, it ends those at other servers.
	Leave(ctx context.Context, mutex, contender string, everywhere bool) error
	// Unblock is a step that makes a blocked waiter of this server a polling one, which keeps its
	// position. If it is the next, its entry ends, so that nobody waits for it. It does nothing to
	// any other contender.
	Unblock(ctx context.Context, mutex, contender string) error
	// Waiters returns the first count queue entries of all servers, in order. It is as fresh as Read.
	Waiters(ctx context.Context, mutex string, count int) ([]simba.QueueEntry, error)
	// Listen says that Hooks.Listeners returns another contender of a watched mutex. If it waits at
	// another server, that server calls its Hooks.Listens soon. Listen does not block.
	Listen(mutex string)
	// WatchAll calls Hooks.Listed for all mutexes, now and after each change of their list, until the
	// next WatchAll. none = only end the former call. WatchAll does not block, and calls no hook
	// itself.
	WatchAll(none bool)
}

// Queueing says what Take of a Queue does for a contender that does not get the mutex. For Blocks, it
// returns no state.
type Queueing uint8

// The values of Queueing.
const (
	AsItIs Queueing = iota // it makes no queue entry, and changes none
	Polls                  // it makes the queue entry of a polling waiter
	Blocks                 // it makes the queue entry of a blocked waiter
)

// elsewhereWindow is the shortest reservation for a polling waiter that is notified by another
// server.
const elsewhereWindow = 3 * time.Second

// acquireQueued is acquire for a Queue: one step, which also queues the contender.
func (e *Engine) acquireQueued(ctx context.Context, m *mutexState, r simba.AcquireRequest, t *Ticket) (o simba.Outcome, _ *Ticket, err error) {
	if r.Waiter != nil && t == nil {
		t = e.enter(m, r)
	}
	if t != nil && e.Waiters.Find(r.Mutex, r.Contender) != t {
		return simba.Outcome{Status: simba.StatusWaiting}, t, nil // a later ticket has replaced it
	}
	l := &Lease{Owner: r.Contender, TTL: r.TTL, Transition: r.Transition, Since: time.Now()}
	switch {
	case t != nil:
		l.Queueing = Blocks
	case !r.NoQueue && e.Waiters.Find(r.Mutex, r.Contender) == nil:
		l.Queueing = Polls
	}
	for range attempts {
		taking, s, err := e.take(ctx, m, l)
		if err == nil && taking != Held {
			if t != nil && !t.Withdraw() { // another server has ended the wait meanwhile
				if taking == Granted {
					e.recordBegin(m, l, "")
					err = e.handBack(ctx, m, l)
				}
				return simba.Outcome{Status: simba.StatusWaiting}, t, err
			}
			o, err = e.finishAcquire(m, r, l, taking == Renewed)
			return o, nil, err
		}
		if err == nil && t == nil {
			e.observe(m, s, l.Since)
			s, err = e.serveNext(ctx, m, s, r.Contender)
		}
		if errors.As(err, new(*Elsewhere)) && t != nil && t.Withdraw() {
			t = nil // so that nothing else ends the wait meanwhile
			e.removeUnlessBlocked(m, r.Contender)
		}
		if err != nil {
			return o, t, err
		}
		if t != nil || s.Live || s.Next != "" && s.Next != r.Contender {
			return e.refuseOrWait(m, r, t, s), t, nil
		}
		l.Since = time.Now()
	}
	return o, t, errKeepsChanging
}

// take is Store.Take as a step of the mutex.
func (e *Engine) take(ctx context.Context, m *mutexState, l *Lease) (taking Taking, s State, err error) {
	err = e.step(ctx, m, func() (err error) {
		taking, s, err = e.store.Take(ctx, m.mutex, l)
		return err
	})
	if l.Queueing == Blocks && e.Waiters.Find(m.mutex, l.Owner) == nil {
		e.settleLater(m.mutex, l.Owner) // its wait has ended meanwhile
	}
	return taking, s, err
}

// serveNext grants a free mutex to the next waiter if it is one of this server, or offers it to a
// polling one. It ends the entry of a polling waiter that cannot be reached, or that did not take
// the mutex, unless nobody else wants it. It leaves a mutex to the requester, a contender whose
// request runs it; "" = none. The caller holds m.lock, and has just read s. serveNext returns the
// state that it leaves.
func (e *Engine) serveNext(ctx context.Context, m *mutexState, s State, requester string) (_ State, err error) {
	for err == nil {
		if s.Live || s.Next != "" && s.Next == requester && e.Waiters.Find(m.mutex, s.Next) == nil {
			return s, nil
		}
		if s.Next == "" {
			e.announceFree(m)
			return s, nil
		}
		e.mu.Lock()
		w, reserved := m.index[s.Next], m.reserved
		offer := w != nil && w.notifiedAt == 0 && (w.elsewhere || e.Notices.Subscribed(simba.ContenderChannel(m.mutex, s.Next)))
		e.mu.Unlock()
		t := e.Waiters.Find(m.mutex, s.Next)
		switch {
		case t != nil:
			to := t.lease()
			_, ok, err := e.pass(ctx, m, From{}, to)
			if err != nil {
				e.noteUnknown(ctx, m, err, From{}, to, false)
				return s, err
			}
			if ok {
				e.recordBegin(m, to, reasonHandoff)
				if !e.deliver(m, t, to, false) {
					if err = e.handBack(ctx, m, to); err != nil {
						return s, err
					}
				}
			}
		case s.NextOwns: // its connection has closed, but other servers already see it as the owner
			if err = e.queue.Leave(ctx, m.mutex, s.Next, false); err != nil {
				return s, err
			}
			e.leave(m, s.Next, reasonGone)
		case w != nil && reserved == w:
			return s, nil
		case offer:
			if e.notify(m, w, 0) {
				return s, nil
			}
		case w != nil && s.Waiters == 1 && requester == "":
			e.announceFree(m)
			return s, nil
		default:
			if err = e.queue.Leave(ctx, m.mutex, s.Next, false); err != nil {
				return s, err
			}
			e.leave(m, s.Next, "missed its turn")
		}
		s, err = e.look(ctx, m)
	}
	return s, err
}

// handBack ends a tenure whose wait had ended before it began. If that fails, a refresh tries again.
func (e *Engine) handBack(ctx context.Context, m *mutexState, l *Lease) error {
	_, _, err := e.handOff(ctx, m, handoff{from: l.from(), kind: simba.EventReleased, reason: reasonGone})
	if err != nil {
		e.addOrphans(m, orphan{lease: *l, gone: true})
	}
	return err
}

// endEntry ends the queue entry of a wait. If the connection broke, the waiter becomes a polling
// one.
func (e *Engine) endEntry(t *Ticket, why simba.EndReason) error {
	mutex, contender := t.Request.Mutex, t.Request.Contender
	err := e.request(context.Background(), mutex, "", func(ctx context.Context, m *mutexState) error {
		if e.Waiters.Find(mutex, contender) == nil {
			e.dequeue(t, why)
		}
		return e.settleEntry(ctx, m, contender)
	})
	if err != nil {
		if e.Waiters.Find(mutex, contender) == nil {
			e.dequeue(t, why) // a request that did not get the lock has not
		}
		e.settleLater(mutex, contender)
	}
	return err
}

// settleEntry makes a queue entry in the store like the one here: it ends it, or makes it that of a
// polling waiter.
func (e *Engine) settleEntry(ctx context.Context, m *mutexState, contender string) error {
	switch {
	case e.Waiters.Find(m.mutex, contender) != nil:
		return nil
	case e.isQueued(m, contender):
		return e.queue.Unblock(ctx, m.mutex, contender)
	}
	return e.queue.Leave(ctx, m.mutex, contender, false)
}

// settleLater is settleEntry in the background, until it succeeds.
func (e *Engine) settleLater(mutex, contender string) {
	key := [2]string{mutex, contender}
	if _, runs := e.settling.LoadOrStore(key, true); runs {
		return
	}
	e.Go(func() {
		for !e.Stopped() && e.request(e.Stopping, mutex, contender, func(ctx context.Context, m *mutexState) error {
			e.settling.Delete(key) // a later call may not see what this one settles
			return e.settleEntry(ctx, m, contender)
		}) != nil {
			e.settling.Store(key, true)
			Sleep(e.Stopping, retryPause, nil)
		}
	})
}

// noteOffer notifies the next waiter of a free mutex, one of another server, if it subscribes here.
func (e *Engine) noteOffer(m *mutexState, before, s State) {
	if s.Live && s.Next != "" && s.Next != before.Next {
		if own := simba.ContenderChannel(m.mutex, s.Next); e.Notices.Subscribed(own) {
			e.Notices.Publish(own, simba.OfferNotice(e.lastOwner(m), s.Next))
		}
	}
}

func (e *Engine) lastOwner(m *mutexState) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return m.lastOwner
}

// left implements Hooks.Left.
func (e *Engine) left(mutex, contender, reason string) {
	m := e.ref(mutex)
	defer e.unref(m)
	e.Waiters.Grant(mutex, contender, Grant{}) // ends its wait without a lease
	if reason == "" {
		e.removeUnlessBlocked(m, contender)
	} else {
		e.leave(m, contender, reason)
	}
}

// listens implements Hooks.Listens.
func (e *Engine) listens(mutex, contender string) bool {
	m := e.ref(mutex)
	defer e.unref(m)
	e.mu.Lock()
	defer e.mu.Unlock()
	w := m.index[contender]
	if w != nil {
		w.elsewhere, w.notifiedAt, m.stale = true, 0, true
	}
	return w != nil
}

// listeners implements Hooks.Listeners.
func (e *Engine) listeners(mutex string) (contenders map[string]bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m := e.mutexes[mutex]; m != nil {
		contenders = maps.Clone(m.listeners)
	}
	return contenders
}

// listed implements Hooks.Listed. It watches the mutexes for pattern subscribers. If first is
// false, it announces the owners of those that are new.
func (e *Engine) listed(mutexes []string, first bool) {
	listed := make(map[string]bool)
	var all sync.WaitGroup
	slots := make(chan struct{}, maxRefreshes)
	for _, mutex := range mutexes {
		listed[mutex] = true
		m := e.ref(mutex)
		e.mu.Lock()
		isNew := !m.byPattern
		if isNew {
			m.byPattern, m.known = true, m.known || !first
			e.watchLocked(m)
			e.queue.Listen(mutex) // it may be watched since before its node was deleted
		}
		e.mu.Unlock()
		if !isNew || !first {
			e.unref(m)
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			_ = e.within(e.Stopping, e.options.Timeout, func(ctx context.Context) error { return e.briefly(ctx, m, e.refreshAndHandOff) })
			e.unref(m)
			<-slots
		})
	}
	all.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	for mutex, m := range e.mutexes {
		if m.byPattern && !listed[mutex] {
			m.byPattern = false
			m.refs++
			e.unrefLocked(m)
		}
	}
	if first && e.allListed != nil {
		select {
		case <-e.allListed:
		default:
			close(e.allListed)
		}
	}
}

// lost implements Hooks.Lost. No other notice would make a polling waiter ask again.
func (e *Engine) lost(mutex, contender string, token uint64, reason string) {
	m := e.ref(mutex)
	defer e.unref(m)
	if token != 0 {
		e.announce(m, simba.EventExpired, State{Owner: contender, Token: token}, reason)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if token != 0 {
		if m.lastOwner = contender; reason != "" { // contenders know when a lease expires
			m.freedBy = contender
		}
		if m.seen.Token == token {
			m.seen = State{}
		}
	} else if w := m.index[contender]; w != nil && !e.isBlocked(m, w) {
		m.removeLocked(w)
		e.Notices.Publish(simba.ContenderChannel(mutex, contender), simba.OfferNotice(m.lastOwner, contender))
	}
	m.stale = true
	if !m.requeuing && e.Waiters.Find(mutex, contender) != nil { // its lease may end before it learns of it
		m.requeuing = true
		e.Go(func() { e.requeueAll(m) })
	}
}

// requeueAll makes the queue entries of the blocked waiters again that the store has lost, in order.
func (e *Engine) requeueAll(m *mutexState) {
	e.mu.Lock()
	m.requeuing = false
	e.mu.Unlock()
	for _, t := range e.Waiters.Waiting(m.mutex) {
		for !e.Stopped() && e.requeue(t) != nil {
			Sleep(e.Stopping, retryPause, nil)
		}
	}
}

// requeue makes the queue entry of a blocked waiter again.
func (e *Engine) requeue(t *Ticket) error {
	r := t.Request
	return e.request(e.Stopping, r.Mutex, r.Contender, func(ctx context.Context, m *mutexState) error {
		if e.Waiters.Find(r.Mutex, r.Contender) != t {
			return nil
		}
		l := t.lease()
		l.Queueing = Blocks
		taking, _, err := e.take(ctx, m, l)
		switch {
		case errors.As(err, new(*Elsewhere)): // the contender has asked another server since
			t.Grant(Grant{})
			e.leave(m, r.Contender, "asks another server")
			return nil
		case err != nil:
			return err
		case taking == Held:
			return nil
		case taking == Granted:
			e.recordBegin(m, l, "")
		}
		if !e.wake(m, l) && taking == Granted {
			err = e.handBack(ctx, m, l)
		}
		return err
	})
}
