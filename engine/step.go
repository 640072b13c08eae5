package engine

import (
	"slices"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp"
)

// step is one run of transitions on one mutex, under its shard's lock. It has their input, which is
// called the world, and their effects. Several steps may run under one locking. The shard reuses
// one step for all.
type step struct {
	// The world.
	now          simba.Instant
	wall         int64         // now in Unix milliseconds
	recoverUntil simba.Instant // until then no new tenure begins
	former       uint64        // tenures up to this token began in an earlier run
	window       time.Duration // of a reservation; 0 = none
	grace        time.Duration // how long a polling waiter that does not ask again stays
	// drawToken returns the next fencing token.
	drawToken func() uint64
	// newOrder returns the order of a contender that is queued now.
	newOrder func(wall int64) order
	// nextArrival returns the next arrival number, for a contender that is queued by score.
	nextArrival func() uint64
	// subscribed reports whether the contender's own channel has a subscriber.
	subscribed func(mutex, contender string) bool

	// chosen is the token of the next tenure, if a transaction has drawn it; else 0.
	chosen uint64

	// The effects.
	changed       bool   // the lease has changed
	renewed       bool   // its windows began anew
	forced        bool   // the change needs an fsync in every mode: see simba.Change
	began         string // the owner whose tenure began last; "" = none
	freed         bool   // a tenure ended early, or a reservation: announce if the mutex is free
	last          string // the owner of that tenure, or the one before the reservation
	spent         uint64 // the largest token that the step gave out
	events        []simba.Event
	offers        []offerNotice   // for polling waiters, in order
	wakes         []*ticket       // of blocked waiters to wake
	tenureLengths []time.Duration // of the tenures that ended, for the statistics
}

// offerNotice is the notice to a polling waiter that the mutex is free. The mutex is reserved for
// that waiter, unless the handoff window is 0.
type offerNotice struct {
	mutex, contender string
	last             string // the owner before
}

// forget drops the effects. The shard reuses the step, so it must not keep names of 64 KiB, or
// lists of thousands.
func (s *step) forget() {
	s.changed, s.renewed, s.forced = false, false, false
	s.began, s.freed, s.last, s.spent, s.chosen = "", false, "", 0, 0
	s.events, s.offers, s.wakes = emptied(s.events), emptied(s.offers), emptied(s.wakes)
	s.tenureLengths = emptied(s.tenureLengths)
}

// emptied returns an empty list for reuse, or nil if it has room for many.
func emptied[E any](list []E) []E {
	if cap(list) > 16 {
		return nil
	}
	clear(list)
	return list[:0]
}

func (s *step) hasEffects() bool {
	return s.changed || s.freed || s.spent != 0 || len(s.events) > 0 || len(s.offers) > 0 || len(s.wakes) > 0
}

func (s *step) event(kind simba.EventKind, m *mutex, who string, token uint64, reason string) {
	name := m.name()
	// The name and the value of a lock key may have 64 KiB each, and both are parts of the label.
	// An event must not keep the label in memory.
	if len(m.label) > simba.MaxMutexLen+simba.MaxContenderLen {
		name, who = strings.Clone(name), strings.Clone(who)
	}
	s.events = append(s.events, simba.Event{At: s.wall, Kind: kind, Mutex: name, Owner: who, Token: token, Reason: reason})
}

// shortened returns events as the history keeps them, with names cut to the lengths that the SIMBA
// commands allow.
func shortened(events []simba.Event) []simba.Event {
	if !slices.ContainsFunc(events, isLong) {
		return events
	}
	events = slices.Clone(events)
	for i := range events {
		events[i] = short(events[i])
	}
	return events
}

// short is shortened for one event.
func short(e simba.Event) simba.Event {
	if isLong(e) {
		e.Mutex = strings.Clone(e.Mutex[:min(len(e.Mutex), simba.MaxMutexLen)])
		e.Owner = strings.Clone(e.Owner[:min(len(e.Owner), simba.MaxContenderLen)])
	}
	return e
}

func isLong(e simba.Event) bool {
	return len(e.Mutex) > simba.MaxMutexLen || len(e.Owner) > simba.MaxContenderLen
}

// nextToken returns the token of a tenure that begins.
func (s *step) nextToken() uint64 {
	n := s.chosen
	if s.chosen = 0; n == 0 {
		n = s.drawToken()
	}
	s.spent = max(s.spent, n)
	return n
}

// ticket is a blocked ACQUIRE. engine, mutex and contender do not change. The lock of the mutex's
// shard guards all other fields.
type ticket struct {
	engine    *Engine
	mutex     string
	contender string
	waiter    simba.Waiter

	entry      *entry // while it waits in the queue
	superseded bool   // another connection of the same contender replaced it
	ended      bool   // its wait is over

	// absent: readyRequeued made its entry ready, and its connection has not called End since.
	absent bool

	// Of the tenure that the waiter was granted.
	token uint64    // 0 = none
	from  *entry    // its queue entry before
	after simba.Seq // the change that its waiter's reply rests on
}

// unrecorded is the Seq of a change that the sequencer has yet to number.
const unrecorded = everything

// owns reports whether the tenure that the waiter was granted lasts.
func (t *ticket) owns(m *mutex) bool { return t.token != 0 && t.token == m.token }

// committed reports whether the waiter's grant is committed.
func (t *ticket) committed() bool { return t.after <= t.engine.sequencer.journal.Committed() }

// wake wakes the waiter of a ticket, if there is one. The caller sets the ticket's fields to the
// result.
func (s *step) wake(t *ticket) *ticket {
	if t != nil {
		s.wakes = append(s.wakes, t)
	}
	return t
}
