package proxy

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/history"
)

// DefaultHistory is how many events an EventLog keeps.
const DefaultHistory = 10000

// EventLog is what this server has seen happen, by its own doing or in the store:
// it numbers the events, remembers the last of them and publishes each once on
// its mutex' event channel. Safe for concurrent use.
//
// A server can learn of one and the same change twice, from its own request and from
// the store. Beginning and end of a tenure are known by its token, so the second
// time is passed over, as long as the first is remembered; and so is a beginning that comes behind its end.
type EventLog struct {
	// Overtaking is for how long what is told of one tenure may be overtaken by what is told of
	// the next: the beginning of a tenure waits so long for the end of the one before, and its end for its
	// beginning. 0 = events come in order. Set it before the first event.
	ReorderWindow time.Duration

	notices simba.Notices

	sending sync.Mutex        // keeps notices in order: held from numbering to publishing
	early   map[string]*early // by mutex; guarded by sending

	mu   sync.Mutex // guards what follows
	seq  simba.Seq
	ring history.Ring
	seen map[turn]struct{} // of the events in ring
	last map[string]simba.Event
}

// early is what came before the end of an earlier tenure, in order of the tenures.
type early struct {
	events []heldEvent
	timer  *time.Timer   // for the first that has waited long enough
	gone   chan struct{} // closed when no event is left
}

type heldEvent struct {
	simba.Event
	announce bool
	until    time.Time // it waits no longer, nor do those before it
}

// turn is the beginning or the end of a tenure: what happens to it only once.
type turn struct {
	mutex string
	token uint64
	end   bool
}

func turnOf(e simba.Event) (turn, bool) {
	switch e.Kind {
	case simba.EventAcquired:
		return turn{e.Mutex, e.Token, false}, true
	case simba.EventReleased, simba.EventExpired, simba.EventBroken:
		return turn{e.Mutex, e.Token, true}, true
	}
	return turn{}, false
}

// NewEventLog returns an event log of the last limit events, 0 = DefaultHistory. Its
// numbers begin at the wall clock's microseconds, so that they grow from one run of
// the server to the next.
func NewEventLog(n simba.Notices, limit int) *EventLog {
	if limit == 0 {
		limit = DefaultHistory
	}
	return &EventLog{
		notices: n,
		seq:     simba.Seq(time.Now().UnixMicro()),
		ring:    history.Ring{Limit: limit},
		seen:    make(map[turn]struct{}),
		last:    make(map[string]simba.Event),
	}
}

// Record takes events in, in order, with their Seq yet to be given and At in Unix
// milliseconds (0 = now), and publishes those that are new as JSON on their event
// channels. It returns how many were new, without those that wait for others. It must not be called under a lock that a
// subscription takes.
func (c *EventLog) Record(events ...simba.Event) (fresh int) {
	return c.record(false, events)
}

// Announce is Record which also publishes the notice of each new tenure on the
// mutex' channel: for an engine whose store has no channels of its own.
func (c *EventLog) Announce(events ...simba.Event) (fresh int) {
	return c.record(true, events)
}

func (c *EventLog) record(announce bool, events []simba.Event) (fresh int) {
	if len(events) == 0 {
		return 0
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	for _, e := range events {
		if e.At == 0 {
			e.At = time.Now().UnixMilli()
		}
		if c.isEarly(e) {
			c.holdBack(heldEvent{e, announce, time.Now().Add(c.ReorderWindow)})
		} else if c.enter(e, announce) {
			fresh++
		}
	}
	for _, e := range events { // behind all of them: one tells of the end of a tenure and of the next
		c.letGoInTurn(e.Mutex)
	}
	return fresh
}

// enter numbers and publishes an event, and reports whether it is new.
func (c *EventLog) enter(e simba.Event, announce bool) bool {
	if !c.number(&e) {
		return false
	}
	if !c.notices.Any() {
		return true
	}
	if announce && e.Kind == simba.EventAcquired {
		c.notices.Publish(simba.MutexChannel(e.Mutex), simba.AcquiredNotice(e.Owner))
	}
	c.notices.Publish(simba.EventChannel(e.Mutex), string(e.AppendJSON(nil)))
	return true
}

// isEarly reports whether an event has to wait: for the end of an earlier tenure, or for one
// that waits for it.
func (c *EventLog) isEarly(e simba.Event) bool {
	if _, once := turnOf(e); !once || c.ReorderWindow == 0 {
		return false
	}
	held := c.early[e.Mutex]
	return held != nil && held.events[0].Token <= e.Token || c.overtakes(e)
}

// overtakes reports whether an event begins a tenure while an earlier one has not ended, or ends one that
// has not begun behind an earlier one.
func (c *EventLog) overtakes(e simba.Event) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok := c.last[e.Mutex]
	if !ok || last.Token >= e.Token {
		return false
	}
	if e.Kind == simba.EventAcquired {
		return last.Kind == simba.EventAcquired
	}
	_, begun := c.seen[turn{e.Mutex, e.Token, false}]
	return !begun
}

// holdBack keeps an event until its turn has come, or for as long as one may be overtaken.
func (c *EventLog) holdBack(e heldEvent) {
	held := c.early[e.Mutex]
	if held == nil {
		held = &early{gone: make(chan struct{})}
		held.timer = time.AfterFunc(c.ReorderWindow, func() { c.letGoInTime(e.Mutex, held) })
		if c.early == nil {
			c.early = make(map[string]*early)
		}
		c.early[e.Mutex] = held
	}
	at, again := slices.BinarySearchFunc(held.events, e, byTenure)
	if again { // the first counts, as of those that do not wait
		return
	}
	held.events = slices.Insert(held.events, at, e)
}

// letGoInTime is called by the timer.
func (c *EventLog) letGoInTime(mutex string, held *early) {
	c.sending.Lock()
	defer c.sending.Unlock()
	if c.early[mutex] != held {
		return
	}
	now := time.Now()
	for i, e := range slices.Backward(held.events) {
		if !e.until.After(now) {
			c.letGo(mutex, i+1)
			break
		}
	}
	c.letGoInTurn(mutex)
	if len(held.events) > 0 {
		next := slices.MinFunc(held.events, func(a, b heldEvent) int { return a.until.Compare(b.until) })
		held.timer.Reset(time.Until(next.until))
	}
}

// letGoInTurn records what has no reason to wait any more.
func (c *EventLog) letGoInTurn(mutex string) {
	for held := c.early[mutex]; held != nil && !c.overtakes(held.events[0].Event); held = c.early[mutex] {
		c.letGo(mutex, 1)
	}
}

// letGo records the first n of the events that a mutex holds back.
func (c *EventLog) letGo(mutex string, n int) {
	held := c.early[mutex]
	for _, e := range held.events[:n] {
		c.enter(e.Event, e.announce)
	}
	if held.events = held.events[n:]; len(held.events) == 0 {
		held.timer.Stop()
		close(held.gone)
		delete(c.early, mutex)
	}
}

func byTenure(a, b heldEvent) int {
	return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(rank(a), rank(b)))
}

func rank(e heldEvent) int {
	if e.Kind == simba.EventAcquired {
		return 0
	}
	return 1
}

// number gives a new event its Seq and remembers it; it reports whether it is new.
func (c *EventLog) number(e *simba.Event) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, once := turnOf(*e)
	if once {
		if _, old := c.seen[key]; old || e.Kind == simba.EventAcquired && c.hasEnded(key) {
			return false
		}
		c.seen[key] = struct{}{}
		c.last[e.Mutex] = *e
	}
	c.seq++
	e.Seq = c.seq
	forgotten := c.ring.Push(*e)
	if old, once := turnOf(forgotten); once {
		delete(c.seen, old)
		if last := c.last[forgotten.Mutex]; last.Token == forgotten.Token && last.Kind == forgotten.Kind {
			delete(c.last, forgotten.Mutex)
		}
	}
	return true
}

// hasEnded reports whether the end of a tenure was told: its beginning came too late then. The caller holds mu.
func (c *EventLog) hasEnded(begun turn) bool {
	_, ended := c.seen[turn{begun.mutex, begun.token, true}]
	return ended
}

// Last returns the last beginning or end of a tenure of the mutex that is
// remembered; ok is false if there is none.
func (c *EventLog) Last(mutex string) (e simba.Event, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok = c.last[mutex]
	return e, ok
}

// Seq is the number of the last event.
func (c *EventLog) Seq() simba.Seq {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seq
}

// Await waits until all events of the mutex that wait for others at the time of the call
// are recorded, for Overtaking at most: a client then finds what it has caused. It returns
// the error of ctx if that ends before.
func (c *EventLog) Await(ctx context.Context, mutex string) error {
	c.sending.Lock()
	held := c.early[mutex]
	c.sending.Unlock()
	if held == nil {
		return nil
	}
	timer := time.NewTimer(c.ReorderWindow)
	defer timer.Stop()
	select {
	case <-held.gone:
	case <-timer.C:
		c.letGoInTime(mutex, held)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Find returns the newest events that a request asks for, from old to new.
func (c *EventLog) Find(q simba.HistoryRequest) []simba.Event {
	if q.Count == 0 {
		q.Count = 10
	}
	return c.ring.Find(&c.mu, q)
}
