package history

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
)

// heldEvents are the events of one mutex that a Log holds back. Log.held has an entry only for
// mutexes with such events. Log.sending guards them.
type heldEvents struct {
	events []heldEvent   // ordered by tenure
	timer  *time.Timer   // fires at the earliest time until of the events
	gone   chan struct{} // closed when events becomes empty
}

type heldEvent struct {
	simba.Event
	// until is when the log records the event and the held events before it, at the latest.
	until time.Time
}

// isEarly reports whether an event must be held back. Either it overtakes another event, or the log
// holds back an event of the same or an earlier tenure. The caller holds sending.
func (l *Log) isEarly(e simba.Event) bool {
	if _, ok := boundaryOf(e); !ok || l.Window == 0 {
		return false
	}
	held := l.held[e.Mutex]
	return held != nil && held.events[0].Token <= e.Token || l.overtakes(e)
}

// overtakes reports whether an event begins a tenure before an earlier one has ended, or ends a
// tenure that has not begun.
func (l *Log) overtakes(e simba.Event) bool {
	last, ok := l.Last(e.Mutex)
	if !ok || last.Token >= e.Token {
		return false
	}
	if e.Kind == simba.EventAcquired {
		return last.Kind == simba.EventAcquired
	}
	return !l.hasBegun(e.Mutex, e.Token)
}

// holdBack holds an event back. Of two events for the same boundary it keeps the first. The caller
// holds sending.
func (l *Log) holdBack(e simba.Event) {
	held := l.held[e.Mutex]
	if held == nil {
		held = &heldEvents{gone: make(chan struct{})}
		held.timer = time.AfterFunc(l.Window, func() { l.recordDue(e.Mutex, held) })
		l.held[e.Mutex] = held
	}
	h := heldEvent{e, time.Now().Add(l.Window)}
	if at, twice := slices.BinarySearchFunc(held.events, h, byTenure); !twice {
		held.events = slices.Insert(held.events, at, h)
	}
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

// recordDue records the held events whose time until has passed, and those before them.
func (l *Log) recordDue(mutex string, held *heldEvents) {
	l.sending.Lock()
	defer l.sending.Unlock()
	if l.held[mutex] != held {
		return
	}
	now := time.Now()
	for i, e := range slices.Backward(held.events) {
		if !e.until.After(now) {
			l.recordHeld(mutex, i+1)
			break
		}
	}
	l.recordInOrder(mutex)
	if len(held.events) > 0 {
		next := slices.MinFunc(held.events, func(a, b heldEvent) int { return a.until.Compare(b.until) })
		held.timer.Reset(time.Until(next.until))
	}
}

// recordInOrder records the held events that are not early any more. The caller holds sending.
func (l *Log) recordInOrder(mutex string) {
	for held := l.held[mutex]; held != nil && !l.overtakes(held.events[0].Event); held = l.held[mutex] {
		l.recordHeld(mutex, 1)
	}
}

func (l *Log) recordHeld(mutex string, n int) {
	held := l.held[mutex]
	for _, e := range held.events[:n] {
		l.record(e.Event)
	}
	if held.events = held.events[n:]; len(held.events) == 0 {
		held.timer.Stop()
		close(held.gone)
		delete(l.held, mutex)
	}
}

// Await waits until the log has recorded the events of the mutex that it now holds back, for the
// Window at most. So a client finds the events that it caused. If ctx ends first, Await returns the
// error of ctx.
func (l *Log) Await(ctx context.Context, mutex string) error {
	l.sending.Lock()
	held := l.held[mutex]
	l.sending.Unlock()
	if held == nil {
		return nil
	}
	timer := time.NewTimer(l.Window)
	defer timer.Stop()
	select {
	case <-held.gone:
	case <-timer.C:
		l.recordDue(mutex, held)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
