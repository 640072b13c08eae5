package proxy

import (
	"context"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
)

// entry is a queue entry. Its contender is blocked while Engine.Waiters has its ticket. Otherwise
// the contender polls.
type entry struct {
	contender string
	since     time.Time
	announced bool      // as queued
	expiresAt time.Time // when a polling waiter that does not ask again loses its entry
	// notifiedAt is 1 more than the revision at which the waiter was notified; 0 = never. So a
	// waiter is notified once each time the mutex becomes free.
	notifiedAt uint64
	elsewhere  bool // it subscribes to its own channel at another server
}

// enqueueLocked adds a contender to the queue, or extends its entry. A polling waiter keeps its
// entry until one queue grace after the end of the lease. If no lease is running, the queue grace
// begins now.
func (e *Engine) enqueueLocked(m *mutexState, contender string) *entry {
	w := m.index[contender]
	if w == nil {
		w = &entry{contender: contender, since: time.Now()}
		m.entries = append(m.entries, w)
		m.index[contender] = w
		e.watchLocked(m)
	}
	from := time.Now()
	if end := m.leaseEnd(); end.After(from) {
		from = end
	}
	w.expiresAt = from.Add(e.QueueGrace())
	return w
}

func (m *mutexState) removeLocked(w *entry) {
	i := slices.Index(m.entries, w)
	m.entries = slices.Delete(m.entries, i, i+1)
	delete(m.index, w.contender)
	if m.reserved == w {
		m.reserved = nil
	}
}

// position returns the contender's position from 1 on, or 0 if it does not wait.
func (e *Engine) position(m *mutexState, contender string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Index(m.entries, m.index[contender]) + 1
}

// isQueued reports whether a contender waits here.
func (e *Engine) isQueued(m *mutexState, contender string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return m.index[contender] != nil
}

// removeUnlessBlocked removes a contender's queue entry, unless the contender still has a ticket.
func (e *Engine) removeUnlessBlocked(m *mutexState, contender string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := m.index[contender]
	if w == nil || e.isBlocked(m, w) {
		return false
	}
	m.removeLocked(w)
	return true
}

// leave is removeUnlessBlocked with an event.
func (e *Engine) leave(m *mutexState, contender, reason string) {
	if e.removeUnlessBlocked(m, contender) {
		e.Events.Record(simba.Event{Kind: simba.EventLeft, Mutex: m.mutex, Owner: contender, Reason: reason})
	}
}

func (e *Engine) isBlocked(m *mutexState, w *entry) bool {
	return e.Waiters.Find(m.mutex, w.contender) != nil
}

func (e *Engine) pollingLocked(m *mutexState) (list []*entry) {
	if len(m.entries) == e.Waiters.Count(m.mutex) {
		return nil
	}
	for _, w := range m.entries {
		if !e.isBlocked(m, w) {
			list = append(list, w)
		}
	}
	return list
}

// expireEntries removes the entries of polling waiters that have not asked again in time, and ends
// a reservation that is over.
func (e *Engine) expireEntries(m *mutexState) {
	var gone []simba.Event
	now := time.Now()
	e.mu.Lock()
	if m.reserved != nil && !now.Before(m.reservedUntil) {
		m.reserved = nil
	}
	for _, w := range e.pollingLocked(m) {
		if !now.Before(w.expiresAt) && m.reserved != w {
			m.removeLocked(w)
			gone = append(gone, simba.Event{Kind: simba.EventLeft, Mutex: m.mutex, Owner: w.contender, Reason: "lapsed"})
		}
	}
	e.mu.Unlock()
	e.Events.Record(gone...)
	if e.queue != nil {
		for _, left := range gone {
			e.settleLater(m.mutex, left.Owner)
		}
	}
}

// nextLocked returns the first waiter that this server can notify: it is blocked here, and then has
// a ticket, or subscribes to its own channel here. The entry is nil if there is none. For a free
// mutex, nextLocked skips polling waiters that were notified since the mutex became free.
func (e *Engine) nextLocked(m *mutexState, from From) (*entry, *Ticket) {
	for _, w := range m.entries {
		if t := e.Waiters.Find(m.mutex, w.contender); t != nil {
			return w, t
		}
		notified := from.Free() && w.notifiedAt == from.Revision+1
		if !notified && e.Notices.Subscribed(simba.ContenderChannel(m.mutex, w.contender)) {
			return w, nil
		}
	}
	return nil, nil
}

// next is nextLocked, but returns no waiter if no tenure may begin.
func (e *Engine) next(m *mutexState, from From) (*entry, *Ticket) {
	if e.Checks.Refusal() != nil {
		return nil, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.nextLocked(m, from)
}

// mayTake reports whether a contender may take the free mutex: the mutex is not reserved for
// another contender, and no reachable waiter is ahead.
func (e *Engine) mayTake(m *mutexState, contender string, revision uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m.reserved != nil {
		return m.reserved.contender == contender
	}
	first, _ := e.nextLocked(m, From{Revision: revision})
	own := m.index[contender]
	return first == nil || own != nil && slices.Index(m.entries, own) <= slices.Index(m.entries, first)
}

// isAlone reports whether no other contender waits for the mutex here.
func (e *Engine) isAlone(m *mutexState, contender string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(m.entries) == 0 || len(m.entries) == 1 && m.entries[0].contender == contender
}

func (e *Engine) reservationLeft(m *mutexState) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m.reserved == nil {
		return 0
	}
	return roundUp(time.Until(m.reservedUntil))
}

// notify sends a polling waiter the released notice, and reports whether the mutex is now reserved
// for it.
func (e *Engine) notify(m *mutexState, w *entry, revision uint64) (reserved bool) {
	e.mu.Lock()
	w.notifiedAt = revision + 1
	last, elsewhere := m.lastOwner, w.elsewhere
	e.mu.Unlock()
	received := e.Notices.Publish(simba.ContenderChannel(m.mutex, w.contender), simba.OfferNotice(last, w.contender))
	window := e.HandoffWindow()
	if elsewhere {
		received, window = 1, max(window, elsewhereWindow)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if received == 0 || window == 0 || m.index[w.contender] != w {
		return false
	}
	m.reserved, m.reservedUntil = w, time.Now().Add(window)
	if w.expiresAt.Before(m.reservedUntil) {
		w.expiresAt = m.reservedUntil
	}
	return true
}

// Queue implements simba.Backend. It lists the waiters of this server, or those of the store.
func (e *Engine) Queue(ctx context.Context, mutex string, count int) (list []simba.QueueEntry, _ simba.Seq, err error) {
	if e.Stopped() {
		return nil, 0, simba.ErrStopped
	}
	if e.queue != nil {
		err = e.serve(ctx, func(ctx context.Context) error {
			list, err = e.queue.Waiters(ctx, mutex, count)
			return err
		})
		return list, 0, err
	}
	if err := e.store.CheckNames(mutex, ""); err != nil {
		return nil, 0, err
	}
	m := e.ref(mutex)
	defer e.unref(m)
	e.expireEntries(m)
	e.mu.Lock()
	defer e.mu.Unlock()
	// All waiting times end at the same instant, so that they keep the order of the queue.
	now := time.Now()
	list = make([]simba.QueueEntry, 0, min(count, len(m.entries)))
	for i, w := range m.entries[:min(count, len(m.entries))] {
		list = append(list, simba.QueueEntry{
			Contender: w.contender, Position: i + 1, Waiting: now.Sub(w.since), Blocked: e.isBlocked(m, w),
		})
	}
	return list, 0, nil
}
