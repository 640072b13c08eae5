package engine

import (
	"slices"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp"
)

// step is one run of transitions on one mutex, under shard.mu. It has the input of the transitions
// and collects their effects. The shard reuses one step.
type step struct {
	now          simba.Instant
	wall         int64         // now in Unix milliseconds
	recoverUntil simba.Instant // end of the recovery delay
	former       uint64        // a token at least as large as all of earlier runs of the server
	window       time.Duration // length of a reservation; 0 = no reservations
	grace        time.Duration // queue grace of a polling waiter
	// drawToken returns the next fencing token.
	drawToken func() uint64
	// newOrder returns the order of a contender that joins the queue at its end.
	newOrder func(wall int64) order
	// nextArrival returns the arrival for a contender that joins the queue by ZADD. Arrivals order
	// contenders with the same score.
	nextArrival func() uint64
	// subscribed reports whether the contender's own channel has a subscriber.
	subscribed func(mutex, contender string) bool
	// chosen is the token that a transaction has drawn for the next tenure; 0 = none.
	chosen uint64

	effects
}

// effects are what a step has done.
type effects struct {
	changed       bool   // the lease has changed
	forced        bool   // see simba.Change
	began         string // the owner whose tenure began last; "" = none
	freed         bool   // a reservation has ended, or a tenure has ended before its lease expired
	last          string // if freed: the last owner, for the notice that the mutex is free
	spent         uint64 // the largest token that the step gave out
	events        []simba.Event
	offers        []offerNotice   // notices to polling waiters, in order
	wakes         []*ticket       // tickets whose waiters to wake
	tenureLengths []time.Duration // lengths of the tenures that ended, for the statistics
}

// offerNotice is the notice to a polling waiter that the mutex is free. The mutex is reserved for
// that waiter, unless the handoff window is 0.
type offerNotice struct {
	mutex, contender string
	last             string // the previous owner
}

// forget drops the effects. It releases large lists, because the shard keeps the step.
func (s *step) forget() {
	s.chosen = 0
	s.effects = effects{
		events: emptied(s.events), offers: emptied(s.offers), wakes: emptied(s.wakes),
		tenureLengths: emptied(s.tenureLengths),
	}
}

// emptied returns the list without its elements, for reuse. It returns nil if the list has a large
// capacity.
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

// isShown reports whether the step has notices or wake-ups. announce says that somebody subscribes.
func (s *step) isShown(announce bool) bool {
	return announce && (s.freed || len(s.events) > 0) || len(s.offers) > 0 || len(s.wakes) > 0
}

func (s *step) event(kind simba.EventKind, m *mutex, who string, token uint64, reason string) {
	name := m.name()
	// The name and the owner are substrings of the label, which may have 128 KiB. An event must not
	// keep a long label in memory.
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

func (s *step) nextToken() uint64 {
	n := s.chosen
	if s.chosen = 0; n == 0 {
		n = s.drawToken()
	}
	s.spent = max(s.spent, n)
	return n
}

// wake adds t to the tickets whose waiters the engine wakes after the step, and returns t. If t is
// nil, wake does nothing. The caller sets the ticket's fields to the result of the wait.
func (s *step) wake(t *ticket) *ticket {
	if t != nil {
		s.wakes = append(s.wakes, t)
	}
	return t
}
