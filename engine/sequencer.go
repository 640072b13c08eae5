package engine

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/bugs"
	"github.com/simba-resp/simba-resp/history"
)

// sequencer is where the steps of all shards come into one order: it numbers them,
// keeps the history, hands them to the journal, and holds their effects back
// until they are durable.
type sequencer struct {
	journal Journal
	notices simba.Notices
	missed  func(mutex, contender string) simba.Seq // a turn that reached nobody

	// sending keeps notices in order: it is held from taking them out of the unsent
	// until they are sent.
	sending sync.Mutex

	mu      sync.Mutex // guards what follows
	seq     simba.Seq
	history history.Ring
	unsent  []notice // in the order of after
	wakes   []wakeUp // likewise; they overtake notices

	waiting   atomic.Int64  // effects in unsent and wakes, to pass by without a lock
	keyEvents atomic.Uint32 // simba.KeyEvents
}

// notice is what subscribers are told of a step, once the change after is durable:
// an event, that it is a polling waiter's turn, or any message.
type notice struct {
	after       simba.Seq
	event       simba.Event // if it is none of the others
	reservation reservation // if contender is not ""
	message     *message
}

// message is what a transaction publishes.
type message struct{ channel, payload string }

// wakeUp is what a blocked waiter is told.
type wakeUp struct {
	after  simba.Seq
	waiter simba.Waiter
}

func (n notice) rests() simba.Seq { return n.after }
func (w wakeUp) rests() simba.Seq { return w.after }

// record gives the step its number and hands it on. It returns the Seq that what is
// told of the mutex rests on from now on: 0 when only the queue changed, unless
// the journal holds back on that. What a journal holds back is always settled by
// the one whose step it was, so nothing in the unsent waits for nobody.
func (l *sequencer) record(m *mutex, s *step) (rests simba.Seq) {
	if !s.hasEffects() {
		return 0
	}
	announce := l.notices.Any()
	ch := change(m, s)

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.number(&ch, s) && (l.journal.Append(ch) || s.changed || s.spent != 0) {
		rests = ch.Seq
	}
	l.post(m, s, announce)
	l.waiting.Store(int64(len(l.unsent) + len(l.wakes)))
	return rests
}

// recordAll is record for the steps of a transaction: a crash leaves all of them or none.
// What it publishes comes after what the steps themselves have to tell.
func (l *sequencer) recordAll(parts []part, messages []message) (rests simba.Seq) {
	announce := l.notices.Any()
	changes := make([]simba.Change, 0, len(parts))

	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range parts {
		p := &parts[i]
		if !p.step.hasEffects() {
			continue
		}
		ch := change(p.m, &p.step)
		if l.number(&ch, &p.step) {
			changes = append(changes, ch)
			p.rests = ch.Seq
			rests = ch.Seq
		}
		l.post(p.m, &p.step, announce)
	}
	if len(changes) > 0 {
		l.journal.AppendAll(changes)
	}
	for i := range messages {
		l.unsent = append(l.unsent, notice{after: l.seq, message: &messages[i]})
	}
	l.waiting.Store(int64(len(l.unsent) + len(l.wakes)))
	return rests
}

// change is what a step does to what is stored.
func change(m *mutex, s *step) simba.Change {
	ch := simba.Change{Token: s.spent}
	if s.changed {
		ch.Forced = s.forced
		if m.owned() {
			ch.Kind, ch.Lease = simba.ChangePut, m.lease()
		} else {
			ch.Kind, ch.Lease.Mutex = simba.ChangeDelete, m.name()
		}
	}
	return ch
}

// number gives a change and its events their numbers, and reports whether there is
// anything to store. The caller holds mu.
func (l *sequencer) number(ch *simba.Change, s *step) bool {
	for i := range s.events {
		l.seq++
		s.events[i].Seq = l.seq
	}
	ch.Events = shortened(s.events)
	for _, e := range ch.Events {
		l.history.Push(e)
	}
	if len(s.events) == 0 {
		if !s.changed && s.spent == 0 {
			return false
		}
		l.seq++
	}
	ch.Seq = l.seq
	return true
}

// post puts what a step tells into the unsent. The caller holds mu.
func (l *sequencer) post(m *mutex, s *step, announce bool) {
	if announce {
		for _, e := range s.events {
			l.unsent = append(l.unsent, notice{after: l.seq, event: e})
		}
		if kinds := simba.KeyEvents(l.keyEvents.Load()); kinds != 0 && s.changed {
			l.postKeyEvents(m, s, kinds)
		}
	}
	for _, t := range s.reservations {
		l.unsent = append(l.unsent, notice{after: l.seq, reservation: t})
	}
	if announce && s.freed && m.isOpen() {
		free := message{simba.MutexChannel(m.name()), simba.ReleasedNotice(s.last)}
		l.unsent = append(l.unsent, notice{after: l.seq, message: &free})
	}
	for _, t := range s.wakes {
		t.after = l.seq
		if !t.ended { // in this very step
			l.wakes = append(l.wakes, wakeUp{after: l.seq, waiter: t.waiter})
		}
	}
}

// begin reports whether settle may have to wait, and has the journal begin what it would wait for. A
// turn that is told now may reach nobody, and then settle waits for what that leads to.
func (l *sequencer) begin(seq simba.Seq) bool { return l.journal.Begin(seq) || l.maySend() }

// maySend reports whether a notice is due and sending it may lead to a wait.
func (l *sequencer) maySend() bool {
	if l.waiting.Load() == 0 {
		return false
	}
	mark := l.journal.Committed()
	if mark == everything {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.unsent) > 0 && l.unsent[0].after <= mark
}

// settle returns when everything up to seq is durable, and what may be told by
// then has been sent.
func (l *sequencer) commit(ctx context.Context, seq simba.Seq) error {
	for {
		if err := l.journal.Commit(ctx, seq); err != nil {
			return err
		}
		var missed bool
		if seq, missed = l.deliver(); !missed {
			return nil
		}
	}
}

// deliver wakes who may be woken and sends what may be told. A turn that reached
// nobody is missed, and goes to the next in line: deliver returns what that rests on.
//
// Everyone who settles takes part: it sends what may be told by then and ends. So
// those who make effects faster than they can be sent wait for each other, and
// nobody is caught in sending for all.
func (l *sequencer) deliver() (rests simba.Seq, missed bool) {
	if l.waiting.Load() == 0 {
		return 0, false
	}
	for _, w := range take(l, &l.wakes) {
		w.waiter.Wake()
	}
	if l.waiting.Load() == 0 {
		return 0, false
	}
	l.sending.Lock()
	defer l.sending.Unlock()
	for _, n := range take(l, &l.unsent) {
		if !l.send(n) {
			rests, missed = max(rests, l.missed(n.reservation.mutex, n.reservation.contender)), true
		}
	}
	return rests, missed
}

// take removes and returns the effects at the head of a list that may be told.
func take[E interface{ rests() simba.Seq }](l *sequencer, list *[]E) []E {
	l.mu.Lock()
	defer l.mu.Unlock()
	mark := l.journal.Committed()
	if bugs.On(bugs.NoticeBeforeDurable) {
		mark = l.seq
	}
	n := 0
	for n < len(*list) && (*list)[n].rests() <= mark {
		n++
	}
	taken := (*list)[:n:n]
	if *list = (*list)[n:]; len(*list) == 0 {
		*list = nil // the array goes with what was taken
	}
	l.waiting.Add(int64(-n))
	return taken
}

// send publishes a notice to its subscribers. It returns false for a turn that reached nobody.
func (l *sequencer) send(n notice) bool {
	if n.message != nil {
		l.notices.Publish(n.message.channel, n.message.payload)
		l.copyReservation(n.message)
		return true
	}
	if t := n.reservation; t.contender != "" {
		if bugs.On(bugs.TurnNamesTheNext) {
			t.last = t.contender
		}
		return l.sendReservation(t) > 0
	}
	if n.event.Kind == simba.EventAcquired {
		l.notices.Publish(simba.MutexChannel(n.event.Mutex), simba.AcquiredNotice(n.event.Owner))
	}
	l.notices.Publish(simba.EventChannel(n.event.Mutex), string(short(n.event).AppendJSON(nil)))
	return true
}

// sendReservation tells a polling waiter that it is its turn, and returns how many subscribers that reached.
func (l *sequencer) sendReservation(t reservation) int {
	payload := simba.ReleasedNotice(t.last)
	reached := l.notices.Publish(simba.ContenderChannel(t.mutex, t.contender), payload)
	if plain := simba.PlainContenderChannel(t.mutex, t.contender); l.notices.Subscribed(plain) {
		reached += l.notices.Publish(plain, payload)
	}
	return reached
}

// copyReservation passes what a script tells a contender of its turn on to the channel that it listens
// to, if it leaves out the braces there.
func (l *sequencer) copyReservation(m *message) {
	if !strings.HasPrefix(m.payload, simba.ReleasedNotice("")) {
		return
	}
	mutex, contender, ok := simba.CutContenderChannel(m.channel)
	if !ok {
		return
	}
	if plain := simba.PlainContenderChannel(mutex, contender); l.notices.Subscribed(plain) {
		l.notices.Publish(plain, m.payload)
	}
}

// Silent is the Notices of an engine that nobody can subscribe to.
type Silent struct{}

// Publish reaches nobody.
func (Silent) Publish(string, string) int { return 0 }

// Subscribed is false.
func (Silent) Subscribed(string) bool { return false }

// SubscribedPattern is false.
func (Silent) SubscribedPattern(string) bool { return false }

// Any is false.
func (Silent) Any() bool { return false }
