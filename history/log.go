package history

import (
	"cmp"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

// DefaultLimit is how many events a Log keeps by default.
const DefaultLimit = 10000

// Log is the log of events that this server caused or learned of from the store. It numbers
// them, keeps the last of them, and publishes each on the event channel of its mutex. Safe for
// concurrent use.
//
// A server can learn of a change twice: from the reply to its own request, and from the store. So
// the log ignores a second event for the beginning or the end of a tenure, as long as it keeps the
// first. It also ignores the beginning of a tenure that arrives after the end of the same tenure.
// The token identifies the tenure.
//
// With a Window, the log also brings the events of a mutex into the order of its tenures, because
// replies and messages of the store may overtake each other. It holds back the beginning of a
// tenure until the tenure before has ended. It holds back an end until its own tenure has begun. It
// holds no event back for longer than the Window.
type Log struct {
	Window time.Duration // 0 = none; to be set before the first Record

	notices  simba.Notices
	announce bool
	sending  sync.Mutex             // keeps the order from numbering to publishing; locked before mu
	held     map[string]*heldEvents // by mutex; guarded by sending

	mu   sync.Mutex // guards the fields below
	seq  simba.Seq
	ring Ring
	seen map[boundary]struct{} // the beginnings and ends in ring
	// last has the last beginning or end by mutex, as long as ring has it. The beginning of a
	// running tenure stays longer, unless last has maxLast mutexes.
	last    map[string]simba.Event
	lengths simba.Durations // of tenures whose beginning was in last when they ended
}

const maxLast = 20_000

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

// NewLog returns an event log that keeps the last limit events; 0 = DefaultLimit. The first
// number is the wall clock in microseconds, so that numbers grow across restarts of the server. If
// announce is true, the log also publishes the notice of each new tenure on the channel of its
// mutex. Engines whose store has no channels use it.
func NewLog(n simba.Notices, limit int, announce bool) *Log {
	return &Log{
		notices:  n,
		announce: announce,
		seq:      simba.Seq(time.Now().UnixMicro()),
		ring:     Ring{Limit: cmp.Or(limit, DefaultLimit)},
		held:     make(map[string]*heldEvents),
		seen:     make(map[boundary]struct{}),
		last:     make(map[string]simba.Event),
	}
}

// Record records events in order, and publishes each new one as JSON on the event channel of its
// mutex. A recorded event gets a Seq, and the current time if its At is 0. Record returns how many
// events were new, without those that it holds back. It calls the Notices while it holds a lock of
// the log. So the caller must not hold a lock that the Notices need.
func (l *Log) Record(events ...simba.Event) (recorded int) {
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
			l.holdBack(e)
		} else if l.record(e) {
			recorded++
		}
	}
	// This is a second loop, because any of the events may be the end for which a held event waits.
	for _, e := range events {
		l.recordInOrder(e.Mutex)
	}
	return recorded
}

// record records an event, and reports whether it was new. The caller holds sending.
func (l *Log) record(e simba.Event) bool {
	if !l.add(&e) {
		return false
	}
	if l.notices.Any() {
		if l.announce && e.Kind == simba.EventAcquired {
			l.notices.Publish(simba.MutexChannel(e.Mutex), simba.AcquiredNotice(e.Owner))
		}
		l.notices.Publish(simba.EventChannel(e.Mutex), string(e.AppendJSON(nil)))
	}
	return true
}

// add numbers and keeps an event. It returns false if the event is not new.
func (l *Log) add(e *simba.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b, ok := boundaryOf(*e); ok {
		_, old := l.seen[b]
		_, ended := l.seen[boundary{e.Mutex, e.Token, true}]
		if old || ended {
			return false
		}
		l.seen[b] = struct{}{}
		last := l.last[e.Mutex]
		if b.end && last.Kind == simba.EventAcquired && last.Token == e.Token {
			l.lengths.Add(time.Duration(e.At-last.At) * time.Millisecond)
		}
		if e.Token >= last.Token {
			l.last[e.Mutex] = *e
		}
	}
	l.seq++
	e.Seq = l.seq
	removed := l.ring.Push(*e)
	if b, ok := boundaryOf(removed); ok {
		delete(l.seen, b)
		last := l.last[removed.Mutex]
		if last.Token == removed.Token && last.Kind == removed.Kind && (b.end || len(l.last) > maxLast) {
			delete(l.last, removed.Mutex)
		}
	}
	return true
}

// Last returns the last event that begins or ends a tenure of the mutex; ok is false if the log has
// forgotten it, or if there was none.
func (l *Log) Last(mutex string) (e simba.Event, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok = l.last[mutex]
	return e, ok
}

// hasBegun reports whether the log has the beginning of a tenure.
func (l *Log) hasBegun(mutex string, token uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, begun := l.seen[boundary{mutex, token, false}]
	return begun
}

// Seq returns the number of the last event.
func (l *Log) Seq() simba.Seq {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seq
}

// TenureLengths returns the lengths of the tenures whose beginning and end the log has recorded.
func (l *Log) TenureLengths() simba.Durations {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lengths
}

// Find returns the newest events that match a request, from old to new.
func (l *Log) Find(q simba.HistoryRequest) []simba.Event {
	q.Count = cmp.Or(q.Count, 10)
	return l.ring.Find(&l.mu, q)
}
