package mysql

import (
	"context"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// entry is a queue entry. Its contender is blocked while Backend.waiters has its ticket. Otherwise
// the contender polls.
type entry struct {
	contender string
	order     uint64 // grows with each new entry
	since     time.Time
	expiresAt time.Time // when a polling waiter that does not ask again loses its entry
	// notifiedAt is 1 more than the version at which the waiter was notified; 0 = never. Each
	// tenure has a new version. So a waiter is notified once each time the mutex becomes free.
	notifiedAt uint64
}

// enqueue adds a contender to the queue, or extends its entry. It reports whether the entry is new.
func (b *Backend) enqueue(m *mutexState, contender string) (fresh bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.enqueueLocked(m, contender)
}

func (b *Backend) enqueueLocked(m *mutexState, contender string) (fresh bool) {
	e := m.index[contender]
	if fresh = e == nil; fresh {
		b.lastOrder++
		e = &entry{contender: contender, order: b.lastOrder, since: time.Now()}
		m.entries = append(m.entries, e)
		if m.index == nil {
			m.index = make(map[string]*entry)
		}
		m.index[contender] = e
	}
	b.extendEntryLocked(m, e)
	return fresh
}

// extendEntryLocked extends a polling waiter's entry until one queue grace after the end of the
// lease. If no lease is running, the queue grace begins now.
func (b *Backend) extendEntryLocked(m *mutexState, e *entry) {
	from := time.Now()
	if m.leaseEnd.After(from) {
		from = m.leaseEnd
	}
	e.expiresAt = from.Add(b.QueueGrace())
}

func (m *mutexState) removeLocked(e *entry) {
	i, ok := slices.BinarySearchFunc(m.entries, e, byOrder)
	if !ok {
		return
	}
	m.entries = slices.Delete(m.entries, i, i+1)
	delete(m.index, e.contender)
	if m.reserved == e {
		m.reserved = nil
	}
}

func byOrder(a, b *entry) int {
	switch {
	case a.order < b.order:
		return -1
	case a.order > b.order:
		return 1
	}
	return 0
}

// position returns the contender's position from 1 on, or 0 if it does not wait.
func (b *Backend) position(m *mutexState, contender string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := m.index[contender]
	if e == nil {
		return 0
	}
	i, _ := slices.BinarySearchFunc(m.entries, e, byOrder)
	return i + 1
}

func (b *Backend) pollingLocked(m *mutexState) (list []*entry) {
	if len(m.entries) == b.waiters.Count(m.mutex) {
		return nil
	}
	for _, e := range m.entries {
		if b.waiters.Find(m.mutex, e.contender) == nil {
			list = append(list, e)
		}
	}
	return list
}

// expireEntries removes the entries of polling waiters that have not asked again in time, and ends
// a reservation that is over.
func (b *Backend) expireEntries(m *mutexState) {
	var gone []simba.Event
	now := time.Now()
	b.mu.Lock()
	if m.reserved != nil && !now.Before(m.reservedUntil) {
		m.reserved = nil
	}
	for _, e := range b.pollingLocked(m) {
		if !now.Before(e.expiresAt) && m.reserved != e {
			m.removeLocked(e)
			gone = append(gone, simba.Event{Kind: simba.EventLeft, Mutex: m.mutex, Owner: e.contender, Reason: "lapsed"})
		}
	}
	b.mu.Unlock()
	b.eventLog.Announce(gone...)
}

// reachableLocked reports whether this server can notify a waiter. It can if the waiter is blocked
// here, or subscribes to its own channel here.
func (b *Backend) reachableLocked(m *mutexState, e *entry) bool {
	return b.waiters.Find(m.mutex, e.contender) != nil ||
		b.notices.Subscribed(simba.ContenderChannel(m.mutex, e.contender))
}

// nextReachableLocked returns the first reachable waiter. For a free mutex it skips polling waiters
// that were notified since the mutex became free.
func (b *Backend) nextReachableLocked(m *mutexState, from holder) *entry {
	for _, e := range m.entries {
		if from.free() && e.notifiedAt == from.version+1 && b.waiters.Find(m.mutex, e.contender) == nil {
			continue
		}
		if b.reachableLocked(m, e) {
			return e
		}
	}
	return nil
}

// nextWaiter returns the entry of the next waiter after a holder, and the ticket if the waiter is
// blocked. The entry is nil if there is no such waiter, or if no tenure may begin.
func (b *Backend) nextWaiter(m *mutexState, from holder) (*entry, *proxy.Ticket) {
	if b.checks.Refusal() != nil {
		return nil, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.nextReachableLocked(m, from)
	if e == nil {
		return nil, nil
	}
	return e, b.waiters.Find(m.mutex, e.contender)
}

// mayTake reports whether a contender may take the free mutex: the mutex is not reserved for
// another contender, and no reachable waiter is ahead.
func (b *Backend) mayTake(m *mutexState, contender string, version uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.reserved != nil {
		return m.reserved.contender == contender
	}
	first := b.nextReachableLocked(m, holder{version: version})
	own := m.index[contender]
	return first == nil || own != nil && own.order <= first.order
}

// isOnlyContender reports whether no other contender waits for the mutex here.
func (b *Backend) isOnlyContender(m *mutexState, contender string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.reserved != nil && m.reserved.contender != contender {
		return false
	}
	return len(m.entries) == 0 || len(m.entries) == 1 && m.entries[0].contender == contender
}

// hasWaiterAhead reports whether a blocked waiter is ahead of the contender.
func (b *Backend) hasWaiterAhead(m *mutexState, contender string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range m.entries {
		if e.contender == contender {
			return false
		}
		if b.waiters.Find(m.mutex, e.contender) != nil {
			return true
		}
	}
	return false
}

func (b *Backend) claimReservation(m *mutexState, contender string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.reserved != nil && m.reserved.contender == contender {
		m.reserved = nil
	}
}

func (b *Backend) reservationLeft(m *mutexState) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.reserved == nil {
		return 0
	}
	return roundUp(time.Until(m.reservedUntil))
}

// Queue implements simba.Backend. It lists the waiters of this server.
func (b *Backend) Queue(_ context.Context, mutex string, count int) ([]simba.QueueEntry, simba.Seq, error) {
	if b.ctx.Err() != nil {
		return nil, 0, simba.ErrStopped
	}
	if err := b.checkNames(mutex, ""); err != nil {
		return nil, 0, err
	}
	m := b.ref(mutex)
	defer b.unref(m)
	b.expireEntries(m)
	b.mu.Lock()
	defer b.mu.Unlock()
	// All waiting times end at the same instant, so that they keep the order of the queue.
	list, now := make([]simba.QueueEntry, 0, min(count, len(m.entries))), time.Now()
	for i, e := range m.entries[:min(count, len(m.entries))] {
		list = append(list, simba.QueueEntry{
			Contender: e.contender, Position: i + 1, Waiting: now.Sub(e.since),
			Blocked: b.waiters.Find(mutex, e.contender) != nil,
		})
	}
	return list, 0, nil
}
