package proxy

import (
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/history"
)

// DefaultHistory is how many events an EventLog keeps by default.
const DefaultHistory = 10000

// EventLog is the log of events that this server caused or learned of from the store. It numbers
// them, keeps the last of them, and publishes each on the event channel of its mutex.
// Safe for concurrent use.
//
// A server can learn of the same change twice: from the reply of its own request, and from the
// store. A tenure has one beginning and one end, known by its token. So the log ignores a second
// event of the same beginning or end, as long as it keeps the first. It also ignores a beginning
// that arrives after its end.
type EventLog struct {
	// ReorderWindow is by how much an event of a tenure may arrive after an event of the next
	// tenure. The log holds early events back for that long, to bring them into order: see isEarly.
	// 0 = events arrive in order. Set it before the first event.
	ReorderWindow time.Duration

	notices simba.Notices

	sending sync.Mutex // held from numbering to publishing, to publish in order; before mu
	// held are the events that are held back, by mutex; guarded by sending.
	held map[string]*heldEvents

	mu   sync.Mutex // guards the fields below
	seq  simba.Seq
	ring history.Ring
	seen map[boundary]struct{}  // of the events in ring
	last map[string]simba.Event // the last beginning or end in ring, by mutex

	tenures tenureLengths
}

// boundary is the beginning or the end of a tenure. Each happens once.
type boundary struct {
	mutex string
	token uint64
	end   bool
}

// boundaryOf returns the boundary of an event; ok is false if the event neither begins nor ends a
// tenure.
func boundaryOf(e simba.Event) (b boundary, ok bool) {
	switch e.Kind {
	case simba.EventAcquired:
		return boundary{e.Mutex, e.Token, false}, true
	case simba.EventReleased, simba.EventExpired, simba.EventBroken:
		return boundary{e.Mutex, e.Token, true}, true
	}
	return boundary{}, false
}

// NewEventLog returns an event log that keeps limit events; 0 = DefaultHistory. Its numbers begin
// at the wall clock's microseconds, so that they grow from one run of the server to the next.
func NewEventLog(n simba.Notices, limit int) *EventLog {
	if limit == 0 {
		limit = DefaultHistory
	}
	return &EventLog{
		notices: n,
		seq:     simba.Seq(time.Now().UnixMicro()),
		ring:    history.Ring{Limit: limit},
		seen:    make(map[boundary]struct{}),
		last:    make(map[string]simba.Event),
	}
}

// Record records events in order, and publishes those that are new as JSON on their event channels.
// It sets their Seq, and their At if that is 0. It returns how many were new, without those that it
// holds back. It takes the lock sending, and the lock of Notices after it. So the caller must not
// hold the lock of Notices.
func (l *EventLog) Record(events ...simba.Event) (recorded int) {
	return l.record(false, events)
}

// Announce is Record, and also publishes the notice of each new tenure on the mutex' channel.
// Engines use it if their store has no channels of its own.
func (l *EventLog) Announce(events ...simba.Event) (recorded int) {
	return l.record(true, events)
}

func (l *EventLog) record(announce bool, events []simba.Event) (recorded int) {
	if len(events) == 0 {
		return 0
	}
	l.sending.Lock()
	defer l.sending.Unlock()
	for _, e := range events {
		if e.At == 0 {
			e.At = time.Now().UnixMilli()
		}
		if l.isEarly(e) {
			l.holdBack(heldEvent{e, announce, time.Now().Add(l.ReorderWindow)})
		} else if l.publish(e, announce) {
			recorded++
		}
	}
	for _, e := range events { // after all of them, since one may be the end that another waits for
		l.publishHeldInOrder(e.Mutex)
	}
	return recorded
}

// publish numbers, keeps and publishes an event. It reports false if the event is not new. The
// caller holds sending.
func (l *EventLog) publish(e simba.Event, announce bool) bool {
	if !l.add(&e) {
		return false
	}
	if !l.notices.Any() {
		return true
	}
	if announce && e.Kind == simba.EventAcquired {
		l.notices.Publish(simba.MutexChannel(e.Mutex), simba.AcquiredNotice(e.Owner))
	}
	l.notices.Publish(simba.EventChannel(e.Mutex), string(e.AppendJSON(nil)))
	return true
}

// add numbers and keeps an event. It reports false if the event is not new.
func (l *EventLog) add(e *simba.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b, ok := boundaryOf(*e); ok {
		if _, old := l.seen[b]; old || e.Kind == simba.EventAcquired && l.hasEndedLocked(b) {
			return false
		}
		l.seen[b] = struct{}{}
		l.last[e.Mutex] = *e
		l.tenures.note(*e)
	}
	l.seq++
	e.Seq = l.seq
	removed := l.ring.Push(*e)
	if b, ok := boundaryOf(removed); ok {
		delete(l.seen, b)
		if last := l.last[removed.Mutex]; last.Token == removed.Token && last.Kind == removed.Kind {
			delete(l.last, removed.Mutex)
		}
	}
	return true
}

// hasEndedLocked reports whether the log keeps the end of a tenure, given its beginning.
func (l *EventLog) hasEndedLocked(begin boundary) bool {
	_, ended := l.seen[boundary{begin.mutex, begin.token, true}]
	return ended
}

// Last returns the last beginning or end of a tenure of the mutex that the log keeps; ok is false
// if there is none.
func (l *EventLog) Last(mutex string) (e simba.Event, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok = l.last[mutex]
	return e, ok
}

// Seq returns the number of the last event.
func (l *EventLog) Seq() simba.Seq {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seq
}

// TenureLengths returns the lengths of the tenures whose beginning and end the log has recorded.
func (l *EventLog) TenureLengths() simba.Durations {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tenures.lengths
}

// Find returns the newest events that a request asks for, from old to new.
func (l *EventLog) Find(q simba.HistoryRequest) []simba.Event {
	if q.Count == 0 {
		q.Count = 10
	}
	return l.ring.Find(&l.mu, q)
}
