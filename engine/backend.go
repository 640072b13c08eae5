package engine

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/simba-resp/simba-resp"
)

// This file has the methods of simba.Backend, except those of simba.Committer. They wait for locks
// only, so they ignore their contexts.

// Acquire implements simba.Backend.
func (e *Engine) Acquire(_ context.Context, r simba.AcquireRequest) (o simba.Outcome, _ simba.Ticket, err error) {
	var t *ticket
	if r.Waiter != nil {
		t = &ticket{engine: e, mutex: r.Mutex, contender: r.Contender, waiter: r.Waiter}
	}
	refused := false
	seq, err := e.do(r.Mutex, func(m *mutex, s *step) {
		if r.Full || e.queueFull(m) {
			refused = m.grows(s, r) && (r.Full || !m.mayTake(s, r.Contender))
		}
		if !refused {
			o = m.outcome(m.acquire(s, r, t), s, r.Contender)
			o.Settled = o.Status == simba.StatusWaiting && !s.changed && !s.isShown(e.sequencer.notices.Any())
		}
	})
	o.Seq = seq
	if refused {
		return o, nil, simba.ErrOutOfMemory
	}
	if o.Status == simba.StatusWaiting {
		return o, t, err
	}
	return o, nil, err
}

// End implements simba.Ticket.
func (t *ticket) End(why simba.EndReason) (o simba.Outcome, err error) {
	first := false // this reply is the first to show the waiter its tenure
	seq, err := t.engine.do(t.mutex, func(m *mutex, s *step) {
		o = m.outcome(m.endWait(s, t, why), s, t.contender)
		first = o.Status != simba.StatusWaiting && t.owns(m) && m.extra != nil && m.extra.unconfirmed == t
		o.Settled = first && t.committed() && !s.hasEffects()
	})
	o.Seq = seq
	if first { // the reply waits for the grant, not for later changes
		o.Seq = t.after
	}
	return o, err
}

// Abandon implements simba.Ticket.
func (t *ticket) Abandon() (simba.Seq, error) {
	return t.engine.do(t.mutex, func(m *mutex, s *step) { m.abandon(s, t) })
}

// Guard implements simba.Backend.
func (e *Engine) Guard(_ context.Context, r simba.GuardRequest) (o simba.Outcome, err error) {
	seq, err := e.do(r.Mutex, func(m *mutex, s *step) {
		o = m.outcome(m.guard(s, r), s, r.Contender)
	})
	o.Seq = seq
	return o, err
}

// Release implements simba.Backend.
func (e *Engine) Release(_ context.Context, r simba.ReleaseRequest) (owned bool, seq simba.Seq, err error) {
	seq, err = e.do(r.Mutex, func(m *mutex, s *step) { owned = m.release(s, r) })
	return owned, seq, err
}

// Break implements simba.Backend.
func (e *Engine) Break(_ context.Context, name, reason string) (freed bool, seq simba.Seq, err error) {
	seq, err = e.do(name, func(m *mutex, s *step) { freed = m.breakTenure(s, reason) })
	return freed, seq, err
}

// Subscribed implements simba.Backend.
func (e *Engine) Subscribed(_ context.Context, channel string, pattern bool) (seq simba.Seq, err error) {
	if pattern {
		return 0, nil
	}
	for name, contender := range listeners(channel, e.sequencer.plain) {
		replyAfter, err := e.do(name, func(m *mutex, s *step) { m.resubscribe(s, contender) })
		if err != nil {
			return 0, err
		}
		seq = max(seq, replyAfter)
	}
	return seq, nil
}

// listeners yields each mutex and contender to which the contender channel may belong. A channel
// without braces may belong to several contenders, since names may have colons.
func listeners(channel string, plain bool) iter.Seq2[string, string] {
	return func(yield func(name, contender string) bool) {
		if name, contender, ok := simba.CutContenderChannel(channel); ok {
			yield(name, contender)
			return
		}
		rest, ok := strings.CutPrefix(channel, "simba:")
		for i := max(0, len(rest)-1-simba.MaxContenderLen); plain && ok && i < len(rest); i++ {
			if rest[i] == ':' && !yield(rest[:i], rest[i+1:]) {
				return
			}
		}
	}
}

// Owner implements simba.Backend.
func (e *Engine) Owner(_ context.Context, name string) (t simba.Tenure, seq simba.Seq, err error) {
	seq, err = e.do(name, func(m *mutex, s *step) {
		m.advance(s)
		if m.owned() {
			t = m.tenure(s.now)
		}
	})
	return t, seq, err
}

// Check implements simba.Backend.
func (e *Engine) Check(_ context.Context, name string, token uint64) (current bool, seq simba.Seq, err error) {
	seq, err = e.do(name, func(m *mutex, s *step) {
		m.advance(s)
		current = m.owned() && m.token == token
	})
	return current, seq, err
}

// Queue implements simba.Backend.
func (e *Engine) Queue(_ context.Context, name string, count int) (list []simba.QueueEntry, seq simba.Seq, err error) {
	seq, err = e.do(name, func(m *mutex, s *step) {
		m.advance(s)
		if m.extra == nil {
			return
		}
		for i, x := range m.extra.all[:min(count, m.waiters())] {
			list = append(list, simba.QueueEntry{
				Contender: x.contender, Position: i + 1,
				Waiting: s.now.Sub(x.since), Blocked: x.ticket != nil,
			})
		}
	})
	return list, seq, err
}

// defaultCount is the length of a listing when the request has no Count.
const defaultCount = 10

// Scan implements simba.Backend.
func (e *Engine) Scan(_ context.Context, r simba.ScanRequest) (page simba.ScanPage, seq simba.Seq, err error) {
	if !e.enter() {
		return page, 0, simba.ErrStopped
	}
	defer e.leave()
	r.Count = cmp.Or(r.Count, defaultCount)
	from := r.Cursor << cursorShift
	for i := shardOf(from); i < len(e.shards); i++ {
		before := len(page.Mutexes)
		names, next, seen, replyAfter := e.shards[i].scan(page.Mutexes, max(from, shardStart(i)), r)
		seq = max(seq, replyAfter)
		if r.Match != nil { // Match may be slow, so it runs without the lock
			names = names[:before+len(slices.DeleteFunc(names[before:], func(name string) bool { return !r.Match(name) }))]
		}
		page.Mutexes = names
		if next != 0 {
			page.Cursor = next >> cursorShift
			return page, seq, nil
		}
		if r.Count -= seen; r.Count <= 0 && i+1 < len(e.shards) {
			page.Cursor = shardStart(i+1) >> cursorShift
			return page, seq, nil
		}
	}
	return page, seq, nil
}

// scan appends the names of some of the shard's mutexes to names, from the hash from on. It ignores
// r.Match. next and seen are those of table.scan.
func (sh *shard) scan(names []string, from uint64, r simba.ScanRequest) (all []string, next uint64, seen int, seq simba.Seq) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	names = slices.Grow(names, max(0, min(r.Count, sh.table.len)))
	now := sh.engine.clock.Now()
	next, seen = sh.table.scan(from, r.Count, func(m *mutex) {
		held, contended := m.owned() && now < m.end(), m.waiters() > 0
		if (held || contended) && (held || !r.Held) && (contended || !r.Contended) {
			names = append(names, m.name())
		}
	})
	return names, next, seen, sh.seq
}

// History implements simba.Backend.
func (e *Engine) History(_ context.Context, r simba.HistoryRequest) ([]simba.Event, simba.Seq, error) {
	if !e.enter() {
		return nil, 0, simba.ErrStopped
	}
	defer e.leave()
	r.Count = cmp.Or(r.Count, defaultCount)
	events := e.sequencer.history.Find(&e.sequencer.mu, r)
	if len(events) == 0 {
		return nil, 0, nil
	}
	return events, events[len(events)-1].Seq, nil
}

// Stats implements simba.Backend.
func (e *Engine) Stats() (sum simba.Stats) {
	e.life.RLock()
	defer e.life.RUnlock()
	for i := range e.shards {
		sh := &e.shards[i]
		sh.mu.Lock()
		addStats(&sum, &sh.stats)
		sum.Mutexes += int64(sh.table.len)
		sh.mu.Unlock()
	}
	e.sequencer.mu.Lock()
	sum.Seq = e.sequencer.seq
	e.sequencer.mu.Unlock()
	sum.Token = e.token.Load()
	sum.RecoveryDelay = remaining(e.recoverUntil, e.clock.Now())
	return sum
}
