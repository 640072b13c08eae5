package redis

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/history"
)

// reorderWindow is how long the event log waits for the events of a reply that another reply has
// overtaken.
const reorderWindow = 100 * time.Millisecond

// orderedLog is an event log that brings the events of a mutex into the order of its tenures. It
// holds back the beginning of a tenure until the tenure before has ended. It holds back an end
// until its own tenure has begun. It holds no event back for longer than window. Safe for concurrent
// use.
//
// Record, Await and publishHeldDue lock sending. The callers of all other methods hold that lock.
type orderedLog struct {
	*history.Log

	window  time.Duration
	sending sync.Mutex             // guards held; locked before the locks of Log
	held    map[string]*heldEvents // the events that are held back, by mutex
}

func newOrderedLog(n simba.Notices, limit int) *orderedLog {
	return &orderedLog{Log: history.NewLog(n, limit, false), window: reorderWindow, held: make(map[string]*heldEvents)}
}

// Record is history.Log.Record, but holds early events back.
func (l *orderedLog) Record(events ...simba.Event) {
	if len(events) == 0 {
		return
	}
	l.sending.Lock()
	defer l.sending.Unlock()
	for _, e := range events {
		if e.At == 0 {
			e.At = time.Now().UnixMilli()
		}
		if l.isEarly(e) {
			l.holdBack(heldEvent{e, time.Now().Add(l.window)})
		} else {
			l.Log.Record(e)
		}
	}
	// This is a second loop, because any of the events may be the end for which a held event waits.
	for _, e := range events {
		l.publishHeldInOrder(e.Mutex)
	}
}

// heldEvents are the events of one mutex that are held back. orderedLog.held has an entry only for
// mutexes with such events.
type heldEvents struct {
	events []heldEvent   // ordered by tenure
	timer  *time.Timer   // fires at the earliest time until of the events
	gone   chan struct{} // closed when events becomes empty
}

type heldEvent struct {
	simba.Event
	// until is when the log publishes the event and the held events before it, at the latest.
	until time.Time
}

// isEarly reports whether an event must be held back. Either it overtakes another event, or the log
// holds back an event of the same or an earlier tenure.
func (l *orderedLog) isEarly(e simba.Event) bool {
	switch e.Kind {
	case simba.EventQueued, simba.EventLeft:
		return false
	}
	held := l.held[e.Mutex]
	return held != nil && held.events[0].Token <= e.Token || l.overtakes(e)
}

// overtakes reports whether an event begins a tenure before an earlier one has ended, or ends a
// tenure that has not begun.
func (l *orderedLog) overtakes(e simba.Event) bool {
	last, ok := l.Last(e.Mutex)
	if !ok || last.Token >= e.Token {
		return false
	}
	if e.Kind == simba.EventAcquired {
		return last.Kind == simba.EventAcquired
	}
	return !l.HasBegun(e.Mutex, e.Token)
}

// holdBack holds an event back. Of two events for the same boundary it keeps the first.
func (l *orderedLog) holdBack(e heldEvent) {
	held := l.held[e.Mutex]
	if held == nil {
		held = &heldEvents{gone: make(chan struct{})}
		held.timer = time.AfterFunc(l.window, func() { l.publishHeldDue(e.Mutex, held) })
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

// publishHeldDue publishes the held events whose time until has passed, and those before them. The
// timer and Await call it.
func (l *orderedLog) publishHeldDue(mutex string, held *heldEvents) {
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

// publishHeldInOrder publishes the held events that are not early any more.
func (l *orderedLog) publishHeldInOrder(mutex string) {
	for held := l.held[mutex]; held != nil && !l.overtakes(held.events[0].Event); held = l.held[mutex] {
		l.publishHeld(mutex, 1)
	}
}

func (l *orderedLog) publishHeld(mutex string, n int) {
	held := l.held[mutex]
	for _, e := range held.events[:n] {
		l.Log.Record(e.Event)
	}
	if held.events = held.events[n:]; len(held.events) == 0 {
		held.timer.Stop()
		close(held.gone)
		delete(l.held, mutex)
	}
}

// Await waits until the log has published the events of the mutex that it now holds back. So a
// client finds the events that it caused. Await waits for the window at most. If ctx ends first,
// it returns the error of ctx.
func (l *orderedLog) Await(ctx context.Context, mutex string) error {
	l.sending.Lock()
	held := l.held[mutex]
	l.sending.Unlock()
	if held == nil {
		return nil
	}
	timer := time.NewTimer(l.window)
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
