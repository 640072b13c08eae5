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
// them, keeps the last of them, and publishes each on the event channel of its mutex. Safe for
// concurrent use.
//
// A server can learn of a change twice: from the reply to its own request, and from the store. So
// the log ignores a second event for the beginning or the end of a tenure, as long as it keeps the
// first. It also ignores the beginning of a tenure that arrives after the end of the same tenure.
// The token identifies the tenure.
type EventLog struct {
	notices simba.Notices
	sending sync.Mutex // keeps the order from numbering to publishing; locked before mu

	mu   sync.Mutex // guards the fields below
	seq  simba.Seq
	ring history.Ring
	seen map[boundary]struct{}  // the beginnings and ends in ring
	last map[string]simba.Event // the last beginning or end in ring, by mutex

	tenures tenureLengths
}

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

// NewEventLog returns an event log that keeps the last limit events; 0 = DefaultHistory. The first
// number is the wall clock in microseconds, so that numbers grow across restarts of the server.
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

// Record records events in order, and publishes each new one as JSON on the event channel of its
// mutex. A recorded event gets a Seq, and the current time if its At is 0. Record returns how many
// events were new. It calls the Notices while it holds a lock of
// the log. So the caller must not hold a lock that the Notices need.
func (l *EventLog) Record(events ...simba.Event) (recorded int) {
	return l.record(false, events)
}

// Announce is like Record, and also publishes the notice of each new tenure on the channel of its
// mutex. Engines whose store has no channels use it.
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
		if l.publish(e, announce) {
			recorded++
		}
	}
	return recorded
}

// publish numbers, keeps and publishes an event. It returns false if the event is not new. The
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

// add numbers and keeps an event. It returns false if the event is not new.
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

func (l *EventLog) hasEndedLocked(begin boundary) bool {
	_, ended := l.seen[boundary{begin.mutex, begin.token, true}]
	return ended
}

// Last returns the last event in the log that begins or ends a tenure of the mutex; ok is false if
// there is none.
func (l *EventLog) Last(mutex string) (e simba.Event, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok = l.last[mutex]
	return e, ok
}

// HasBegun reports whether the log has the beginning of a tenure.
func (l *EventLog) HasBegun(mutex string, token uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, begun := l.seen[boundary{mutex, token, false}]
	return begun
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

// Find returns the newest events that match a request, from old to new.
func (l *EventLog) Find(q simba.HistoryRequest) []simba.Event {
	if q.Count == 0 {
		q.Count = 10
	}
	return l.ring.Find(&l.mu, q)
}
