package proxy

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
)

// How an EventLog brings the tenures of a mutex into order. The log holds an early event back. It
// holds a beginning until the tenure before has ended, and an end until its own tenure has begun.
// It holds each for ReorderWindow at most. Await and publishHeldDue take the lock sending. All
// other methods are called with it held.

// heldEvents are the events of a mutex that are held back, ordered by tenure. They are never empty
// while they are in EventLog.held.
type heldEvents struct {
	events []heldEvent
	timer  *time.Timer   // fires when the earliest until passes
	gone   chan struct{} // closed when no event is held back any more
}

// heldEvent is an event that is held back.
type heldEvent struct {
	simba.Event
	announce bool
	until    time.Time // then the log publishes it, and all events before it
}

// isEarly reports whether an event must be held back. That is so if it overtakes another event. It
// is also so if the log holds back an event of the same or an earlier tenure.
func (l *EventLog) isEarly(e simba.Event) bool {
	if _, ok := boundaryOf(e); !ok || l.ReorderWindow == 0 {
		return false
	}
	held := l.held[e.Mutex]
	return held != nil && held.events[0].Token <= e.Token || l.overtakes(e)
}

// overtakes reports whether an event begins a tenure while an earlier one has not ended, or ends a
// tenure that has not begun.
func (l *EventLog) overtakes(e simba.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.last[e.Mutex]
	if !ok || last.Token >= e.Token {
		return false
	}
	if e.Kind == simba.EventAcquired {
		return last.Kind == simba.EventAcquired
	}
	_, begun := l.seen[boundary{e.Mutex, e.Token, false}]
	return !begun
}

// holdBack holds an event back. Of two events for the same boundary it keeps the first.
func (l *EventLog) holdBack(e heldEvent) {
	held := l.held[e.Mutex]
	if held == nil {
		held = &heldEvents{gone: make(chan struct{})}
		held.timer = time.AfterFunc(l.ReorderWindow, func() { l.publishHeldDue(e.Mutex, held) })
		if l.held == nil {
			l.held = make(map[string]*heldEvents)
		}
		l.held[e.Mutex] = held
	}
	at, twice := slices.BinarySearchFunc(held.events, e, byTenure)
	if twice {
		return
	}
	held.events = slices.Insert(held.events, at, e)
}

// byTenure compares events by token, and a beginning before an end.
func byTenure(a, b heldEvent) int {
	rank := func(e heldEvent) int {
		if e.Kind == simba.EventAcquired {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(rank(a), rank(b)))
}

// publishHeldDue publishes the events that must not be held back any longer, and those before
// them. The timer calls it.
func (l *EventLog) publishHeldDue(mutex string, held *heldEvents) {
	l.sending.Lock()
	defer l.sending.Unlock()
	if l.held[mutex] != held {
		return
	}
	now := time.Now()
	for i, e := range slices.Backward(held.events) {
		if !e.until.After(now) {
			l.publishHeld(mutex, i+1)
			break
		}
	}
	l.publishHeldInOrder(mutex)
	if len(held.events) > 0 {
		next := slices.MinFunc(held.events, func(a, b heldEvent) int { return a.until.Compare(b.until) })
		held.timer.Reset(time.Until(next.until))
	}
}

// publishHeldInOrder publishes the events of a mutex that are not early any more.
func (l *EventLog) publishHeldInOrder(mutex string) {
	for held := l.held[mutex]; held != nil && !l.overtakes(held.events[0].Event); held = l.held[mutex] {
		l.publishHeld(mutex, 1)
	}
}

// publishHeld publishes the first n events of a mutex that are held back.
func (l *EventLog) publishHeld(mutex string, n int) {
	held := l.held[mutex]
	for _, e := range held.events[:n] {
		l.publish(e.Event, e.announce)
	}
	if held.events = held.events[n:]; len(held.events) == 0 {
		held.timer.Stop()
		close(held.gone)
		delete(l.held, mutex)
	}
}

// Await waits until the log has published the events of the mutex that it holds back at the time of
// the call. So a client finds the events that it caused. Await waits for ReorderWindow at most. It
// returns the error of ctx if that ends first.
func (l *EventLog) Await(ctx context.Context, mutex string) error {
	l.sending.Lock()
	held := l.held[mutex]
	l.sending.Unlock()
	if held == nil {
		return nil
	}
	timer := time.NewTimer(l.ReorderWindow)
	defer timer.Stop()
	select {
	case <-held.gone:
	case <-timer.C:
		l.publishHeldDue(mutex, held)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
