package engine

import (
	"sync"
	"sync/atomic"

	"github.com/simba-resp/simba-resp"
)

// ledger is where the steps of all shards come into one order: it numbers them,
// keeps the history, hands them to the journal, and holds their effects back
// until they are durable.
type ledger struct {
	journal Journal
	notices simba.Notices
	missed  func(mutex, contender string) simba.Seq // a turn that reached nobody

	mu         sync.Mutex // guards what follows
	seq        simba.Seq
	history    ring
	outbox     []effect // in the order of after
	spare      []effect // the outbox' other array, while nobody sends from it
	delivering bool     // someone sends, and will look again before it ends

	waiting atomic.Int64 // len(outbox), to pass by without the lock
}

// spareEffects bounds the array that the outbox keeps after a burst.
const spareEffects = 4096

// effect is what others are told of a step, once the change after is durable.
type effect struct {
	after simba.Seq
	event simba.Event  // its notices go out; Kind 0 = none
	turn  turn         // this polling waiter is told; contender "" = none
	wake  simba.Waiter // this blocked waiter is woken; nil = none
}

// record gives the step its number and hands it on. It returns the Seq that what is
// told of the mutex rests on from now on: 0 when only the queue changed, unless
// the journal holds back on that. What a journal holds back is always settled by
// the one whose step it was, so nothing in the outbox waits for nobody.
func (l *ledger) record(m *mutex, s *step) (rests simba.Seq) {
	if !s.changed && len(s.events) == 0 && len(s.turns) == 0 && len(s.wakes) == 0 {
		return 0
	}
	announce := l.notices.Any()
	ch := simba.Change{Events: s.events}
	if s.changed {
		ch.Forced = s.forced
		if m.owned() {
			ch.Kind, ch.Lease = simba.ChangePut, m.lease()
		} else {
			ch.Kind, ch.Lease.Mutex = simba.ChangeDelete, m.name()
		}
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range s.events {
		l.seq++
		s.events[i].Seq = l.seq
		l.history.push(s.events[i])
	}
	if s.changed || len(s.events) > 0 {
		if len(s.events) == 0 {
			l.seq++
		}
		ch.Seq = l.seq
		if l.journal.Append(ch) || s.changed {
			rests = ch.Seq
		}
	}
	if announce {
		for _, e := range s.events {
			l.outbox = append(l.outbox, effect{after: l.seq, event: e})
		}
	}
	for _, t := range s.turns {
		l.outbox = append(l.outbox, effect{after: l.seq, turn: t})
	}
	for _, t := range s.wakes {
		l.outbox = append(l.outbox, effect{after: l.seq, wake: t.waiter})
	}
	l.waiting.Store(int64(len(l.outbox)))
	return rests
}

// settle returns when everything up to seq is durable, and what waits in the
// outbox and may be told has been sent, by the caller or by someone who is at it.
func (l *ledger) settle(seq simba.Seq) error {
	for {
		if err := l.journal.Commit(seq); err != nil {
			return err
		}
		if seq = l.deliver(); seq == 0 {
			return nil
		}
	}
}

// deliver sends what may be told, in order, one sender at a time. A turn that
// reached nobody goes to the next in line: the Seq of that is returned.
func (l *ledger) deliver() (again simba.Seq) {
	if l.waiting.Load() == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.delivering {
		return 0
	}
	l.delivering = true
	for {
		n := l.tellable()
		if n == 0 {
			break
		}
		batch := l.outbox[:n]
		l.outbox = append(l.spare, l.outbox[n:]...)
		l.spare = nil
		l.waiting.Store(int64(len(l.outbox)))
		l.mu.Unlock()
		for _, e := range batch {
			again = max(again, l.send(e))
		}
		clear(batch)
		l.mu.Lock()
		if cap(batch) <= spareEffects {
			l.spare = batch[:0]
		}
	}
	l.delivering = false
	return again
}

// tellable counts the effects at the head of the outbox that may be told.
func (l *ledger) tellable() (n int) {
	mark := l.journal.Tellable()
	for n < len(l.outbox) && l.outbox[n].after <= mark {
		n++
	}
	return n
}

func (l *ledger) send(e effect) simba.Seq {
	switch {
	case e.wake != nil:
		e.wake.Wake()
	case e.turn.contender != "":
		t := e.turn
		if l.notices.Publish(simba.ContenderChannel(t.mutex, t.contender), simba.ReleasedNotice(t.last)) == 0 {
			return l.missed(t.mutex, t.contender)
		}
	default:
		if e.event.Kind == simba.EventAcquired {
			l.notices.Publish(simba.MutexChannel(e.event.Mutex), simba.AcquiredNotice(e.event.Owner))
		}
		l.notices.Publish(simba.EventChannel(e.event.Mutex), string(e.event.AppendJSON(nil)))
	}
	return 0
}

// Silent is the Notices of an engine that nobody can subscribe to.
type Silent struct{}

// Publish reaches nobody.
func (Silent) Publish(string, string) int { return 0 }

// Subscribed is false.
func (Silent) Subscribed(string) bool { return false }

// Any is false.
func (Silent) Any() bool { return false }
