package redis

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
)

// heard takes in a message. It must not wait: the radio hears nothing else meanwhile.
func (t *subscriptions) heard(m *redis.Message) {
	if m.Pattern == contenderGlob {
		t.onContenderNotice(m.Channel, m.Payload)
		return
	}
	if m.Pattern != "" {
		if r := t.subscriberFor(m.Channel); r != nil && r.confirmed(m.Channel) {
			return // it comes by its own name, too
		}
	}
	if m.Channel == t.serverChannel() {
		t.granted(m.Payload)
		return
	}
	if mutex, ok := simba.ParseEventChannel(m.Channel); ok {
		t.b.recordEvent(mutex, m.Payload)
		return
	}
	reached := t.b.notices.Publish(m.Channel, m.Payload)
	if mutex, ok := simba.ParseMutexChannel(m.Channel); ok {
		t.b.onAcquiredNotice(mutex, m.Payload)
		t.b.onReleasedNotice(mutex, m.Payload)
		return
	}
	if mutex, contender, ok := simba.ParseContenderChannel(m.Channel); ok && m.Pattern == "" {
		t.b.onReservation(mutex, contender, reached)
	}
}

// overheard books a look at a mutex after a turn notice to one contender, if someone waits or
// listens here. It hears the notices of Simba up to 3.1, whose contender may be dead or deaf, and
// those of our own scripts, which have the same form: look.lua tells them apart.
func (t *subscriptions) onContenderNotice(channel, payload string) {
	mutex, contender, ok := simba.ParseContenderChannel(channel)
	releaser, isRelease := strings.CutPrefix(payload, "released@@")
	if !ok || !isRelease {
		return
	}
	name := simba.MutexChannel(mutex)
	if r := t.subscriberFor(name); t.b.waiters.Count(mutex) == 0 && !t.hasSubscriber(mutex) && (r == nil || !r.has(name)) {
		return
	}
	t.b.mu.Lock()
	heard := append(t.b.wakeups[mutex], wakeup{contender, releaser})
	t.b.wakeups[mutex] = heard[max(0, len(heard)-maxWakeups):]
	t.b.mu.Unlock()
	t.b.schedule.advance(mutex, time.Now())
}

// granted takes in a grant that another server's script made: "mutex contender token
// ticket"; token 0 = the ticket has lost its place. An empty message only asks whether
// anyone listens.
func (t *subscriptions) granted(payload string) {
	f := strings.Split(payload, " ")
	if len(f) != 4 {
		return
	}
	token, err := strconv.ParseUint(f[2], 10, 64)
	if err != nil {
		return
	}
	if token == 0 {
		t.b.endReplaced(f[0], f[1], f[3])
		return
	}
	t.b.background(f[0], func(ctx context.Context) {
		t.b.confirmGrant(ctx, f[0], grant{contender: f[1], token: token, ticket: f[3]})
	})
}

// record takes in an event that some script announced.
func (b *Backend) recordEvent(mutex, payload string) {
	var e struct {
		At                 int64
		Event, Mutex       string
		Owner, Reason, Via string
		Token              uint64
	}
	if json.Unmarshal([]byte(payload), &e) != nil || e.Mutex != mutex || eventKinds[e.Event] == 0 {
		return
	}
	if e.Via == b.id && e.Token == 0 {
		return // recorded from the reply; what has a token is known again by it
	}
	b.eventLog.Record(simba.Event{
		At: e.At, Kind: eventKinds[e.Event], Mutex: mutex, Owner: e.Owner, Token: e.Token, Reason: e.Reason,
	})
}

// acquiredSomewhere looks up a tenure that is announced and not known here: it may have
// begun without our scripts.
func (b *Backend) onAcquiredNotice(mutex, payload string) {
	owner, ok := strings.CutPrefix(payload, "acquired@@")
	if !ok || !b.subs.hasSubscriber(mutex) { // who waits here learns of a lease's end by a look
		return
	}
	if last, ok := b.eventLog.Last(mutex); ok && last.Kind == simba.EventAcquired && last.Owner == owner {
		return
	}
	b.schedule.advance(mutex, time.Now().Add(foreignDelay))
}

// releasedSomewhere has a mutex that was announced free handed on to who waits here, and looks
// up a release that is not known.
func (b *Backend) onReleasedNotice(mutex, payload string) {
	owner, ok := strings.CutPrefix(payload, "released@@")
	if !ok {
		return
	}
	if b.waiters.Count(mutex) > 0 {
		b.schedule.advance(mutex, time.Now())
		return
	}
	if last, ok := b.eventLog.Last(mutex); ok && last.Kind != simba.EventAcquired && last.Owner == owner {
		return
	}
	b.schedule.advance(mutex, time.Now().Add(foreignDelay))
}

// foreignPause is left for the reply of a request of our own to tell of its tenure.
const foreignDelay = 5 * time.Millisecond

// turnOf acts on a contender's having been told that the mutex is free: one that is not here
// lets the next have its turn.
func (b *Backend) onReservation(mutex, contender string, reached int) {
	if reached == 0 && b.waiters.Find(mutex, contender) == nil {
		b.background(mutex, func(ctx context.Context) {
			_, _ = b.ask(ctx, mutex, handOffScript, contender, "0", "") // the window ends the turn else
		})
	}
}

// overtaking is for how long one reply may be overtaken by another on its way into the history.
const replyReorderWindow = 100 * time.Millisecond

// see records the tenure that a reply shows, if it began elsewhere and was not known.
func (b *Backend) recordOwner(mutex string, s *state) {
	if s.owner == "" || slices.ContainsFunc(s.events, func(e simba.Event) bool { return e.Token == s.token }) {
		return
	}
	e := simba.Event{At: s.acquired, Kind: simba.EventAcquired, Mutex: mutex, Owner: s.owner, Token: s.token}
	// A look that was made after a grant was confirmed may be answered before: its owner waits here yet.
	if s.status == "confirmed" || len(s.grants) > 0 || b.waiters.Find(mutex, s.owner) != nil {
		e.Reason = "handoff"
	}
	if last, known := b.eventLog.Last(mutex); known && last.Token >= s.token {
		return // replies may overtake each other
	}
	b.eventLog.Record(e)
}
