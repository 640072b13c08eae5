package engine

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/history"
)

// sequencer puts the steps of all shards into one order. It numbers the changes, keeps the history
// and appends the changes to the journal. It sends the notices and wake-ups of a change when the
// change is durable.
type sequencer struct {
	journal     Journal
	notices     simba.Notices
	missedOffer func(mutex, contender string) simba.Seq // handles an offer without a subscriber
	plain       bool                                    // Config.PlainChannels

	// sending keeps notices in order: deliver holds it while it takes notices and sends them.
	sending sync.Mutex

	mu      sync.Mutex // guards this group
	seq     simba.Seq
	history history.Ring
	unsent  []notice // ordered by the field after
	wakes   []wakeUp // ordered by the field after; sent before notices

	waiting atomic.Int64 // len(unsent) + len(wakes); may be read without mu
}

// notice is a message for subscribers: an event, an offer, or any other message.
type notice struct {
	after   simba.Seq   // the sequencer sends the notice when this change is durable
	event   simba.Event // ignored if the notice has an offer or a message
	offer   offerNotice // no contender = none
	message *message    // nil = none
}

// message is a payload for the subscribers of a channel.
type message struct{ channel, payload string }

// wakeUp is the wake-up of a blocked waiter.
type wakeUp struct {
	after  simba.Seq // the sequencer wakes the waiter when this change is durable
	waiter simba.Waiter
}

func (n notice) due() simba.Seq { return n.after }
func (w wakeUp) due() simba.Seq { return w.after }

// start forgets the effects and the history of the time before. Nothing else runs.
func (q *sequencer) start(j Journal, rec Recovery) {
	q.journal, q.seq = j, rec.Seq
	q.unsent, q.wakes = nil, nil
	q.waiting.Store(0)
	q.history = history.Ring{Limit: q.history.Limit}
	for _, ev := range rec.History {
		q.history.Push(ev)
	}
}

// record numbers the change that a step makes, and appends it to the journal. It returns the Seq of
// the change if later replies about the mutex wait for it, otherwise 0. They do not wait for a change
// of the queue that need not be synced: see Journal.Append.
//
// The caller of a step commits afterwards. The commit also sends the effects of the step.
func (q *sequencer) record(m *mutex, s *step) (replyAfter simba.Seq) {
	if !s.hasEffects() {
		return 0
	}
	announce := q.notices.Any()
	ch := change(m, s, announce)

	q.mu.Lock()
	defer q.mu.Unlock()
	q.number(&ch, s)
	if q.journal.Append(ch) || s.changed || s.spent != 0 {
		replyAfter = ch.Seq
	}
	q.post(m, s, announce)
	q.waiting.Store(int64(len(q.unsent) + len(q.wakes)))
	return replyAfter
}

// recordAll is record for the steps of a transaction: a crash leaves all of them or none. The
// messages of the transaction follow the notices of the steps. Unlike record, recordAll also
// returns the Seq of a change that need not be synced.
func (q *sequencer) recordAll(parts []part, messages []message) (replyAfter simba.Seq) {
	announce := q.notices.Any()
	changes := make([]simba.Change, 0, len(parts))

	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range parts {
		p := &parts[i]
		if !p.step.hasEffects() {
			continue
		}
		ch := change(p.m, &p.step, announce)
		q.number(&ch, &p.step)
		changes = append(changes, ch)
		p.replyAfter = ch.Seq
		replyAfter = ch.Seq
		q.post(p.m, &p.step, announce)
	}
	if len(changes) > 0 {
		q.journal.AppendAll(changes)
	}
	for i := range messages {
		q.unsent = append(q.unsent, notice{after: q.seq, message: &messages[i]})
	}
	q.waiting.Store(int64(len(q.unsent) + len(q.wakes)))
	return replyAfter
}

// change returns the change that a step makes to the stored state.
func change(m *mutex, s *step, announce bool) simba.Change {
	ch := simba.Change{Token: s.spent, Shown: s.isShown(announce)}
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

// number numbers a change and its events. A step that only wakes waiters or sends offers is a change,
// too: it has effects that may have to wait for the journal. The caller holds mu.
func (q *sequencer) number(ch *simba.Change, s *step) {
	for i := range s.events {
		q.seq++
		s.events[i].Seq = q.seq
	}
	ch.Events = shortened(s.events)
	for _, e := range ch.Events {
		q.history.Push(e)
	}
	if len(s.events) == 0 {
		q.seq++
	}
	ch.Seq = q.seq
}

// post adds the notices and wake-ups of a step to the unsent ones. The caller holds mu.
func (q *sequencer) post(m *mutex, s *step, announce bool) {
	if announce {
		for _, e := range s.events {
			q.unsent = append(q.unsent, notice{after: q.seq, event: e})
		}
	}
	for _, t := range s.offers {
		q.unsent = append(q.unsent, notice{after: q.seq, offer: t})
	}
	if announce && s.freed && m.isAvailable() {
		free := message{simba.MutexChannel(m.name()), simba.ReleasedNotice(s.last)}
		q.unsent = append(q.unsent, notice{after: q.seq, message: &free})
	}
	for _, t := range s.wakes {
		t.after = q.seq
		if t.state != ended { // the wait may have ended in this step
			q.wakes = append(q.wakes, wakeUp{after: q.seq, waiter: t.waiter})
		}
	}
}

// commit returns when all changes up to seq are durable, and their notices and wake-ups are sent.
func (q *sequencer) commit(seq simba.Seq) error {
	for {
		if err := q.journal.Commit(seq); err != nil {
			return err
		}
		var missed bool
		if seq, missed = q.deliver(); !missed {
			return nil
		}
	}
}

// deliver wakes the waiters and sends the notices whose changes are durable. If an offer's notice
// reaches no subscriber, deliver offers the mutex to the next waiter. Then missed is true, and the
// caller must commit the Seq that deliver returns.
//
// A call sends only the notices that are due when it begins. So if clients cause notices faster
// than the engine can send them, the clients wait for each other, and no single client sends all
// notices.
func (q *sequencer) deliver() (replyAfter simba.Seq, missed bool) {
	if q.waiting.Load() == 0 {
		return 0, false
	}
	for _, w := range take(q, &q.wakes) {
		w.waiter.Wake()
	}
	if q.waiting.Load() == 0 {
		return 0, false
	}
	q.sending.Lock()
	defer q.sending.Unlock()
	for _, n := range take(q, &q.unsent) {
		if !q.send(n) {
			replyAfter, missed = max(replyAfter, q.missedOffer(n.offer.mutex, n.offer.contender)), true
		}
	}
	return replyAfter, missed
}

// take removes from a list the effects whose changes are durable, and returns them. They are the
// first of the list.
func take[E interface{ due() simba.Seq }](q *sequencer, list *[]E) []E {
	q.mu.Lock()
	defer q.mu.Unlock()
	committed := q.journal.Committed()
	n := 0
	for n < len(*list) && (*list)[n].due() <= committed {
		n++
	}
	taken := (*list)[:n:n]
	if *list = (*list)[n:]; len(*list) == 0 {
		*list = nil // releases the array
	}
	q.waiting.Add(int64(-n))
	return taken
}

// send publishes a notice. It returns false for an offer that reached no subscriber.
func (q *sequencer) send(n notice) bool {
	if n.message != nil {
		q.notices.Publish(n.message.channel, n.message.payload)
		q.copyOffer(n.message)
		return true
	}
	if t := n.offer; t.contender != "" {
		return q.sendOffer(t) > 0
	}
	if n.event.Kind == simba.EventAcquired {
		q.notices.Publish(simba.MutexChannel(n.event.Mutex), simba.AcquiredNotice(n.event.Owner))
	}
	q.notices.Publish(simba.EventChannel(n.event.Mutex), string(short(n.event).AppendJSON(nil)))
	return true
}

// sendOffer notifies a polling waiter that the mutex is free. It returns how many subscribers
// received the notice.
func (q *sequencer) sendOffer(t offerNotice) int {
	payload := simba.OfferNotice(t.last, t.contender)
	reached := q.notices.Publish(simba.ContenderChannel(t.mutex, t.contender), payload)
	if plain := simba.PlainContenderChannel(t.mutex, t.contender); q.plain && q.notices.Subscribed(plain) {
		reached += q.notices.Publish(plain, payload)
	}
	return reached
}

// copyOffer handles a message that a script has published. If it is the notice of an offer, and
// channels without braces are wanted, copyOffer publishes it there too.
func (q *sequencer) copyOffer(m *message) {
	if !q.plain || !strings.HasPrefix(m.payload, simba.ReleasedNotice("")) {
		return
	}
	mutex, contender, ok := simba.CutContenderChannel(m.channel)
	if !ok {
		return
	}
	if plain := simba.PlainContenderChannel(mutex, contender); q.notices.Subscribed(plain) {
		q.notices.Publish(plain, m.payload)
	}
}

// Silent is the Notices of an engine without subscribers.
type Silent struct{}

// Publish reaches nobody.
func (Silent) Publish(string, string) int { return 0 }

// Subscribed is false.
func (Silent) Subscribed(string) bool { return false }

// SubscribedPattern is false.
func (Silent) SubscribedPattern(string) bool { return false }

// Any is false.
func (Silent) Any() bool { return false }
