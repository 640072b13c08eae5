package engine

import (
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

// shard has a part of the mutexes, under one lock.
type shard struct {
	engine *Engine

	mu       sync.Mutex // guards all following fields
	table    table
	due      deadlines
	seq      simba.Seq // the last change in this shard that replies wait for
	arrivals uint64    // the last arrival given to a queue entry
	latest   float64   // the largest score that newOrder has returned
	step     step      // the memory of every step
	watched  watched
	stats    simba.Stats // what the shard counts
	timer    *time.Timer
	armed    simba.Instant // when the timer fires; never = the timer is not set
}

// addStats adds what a shard counts to a sum.
func addStats(sum, s *simba.Stats) {
	sum.Held += s.Held
	sum.Blocked += s.Blocked
	sum.Polling += s.Polling
	sum.Acquired += s.Acquired
	sum.Renewed += s.Renewed
	sum.Released += s.Released
	sum.Expired += s.Expired
	sum.Broken += s.Broken
	sum.Handoffs += s.Handoffs
	sum.TenureLengths.Merge(&s.TenureLengths)
}

func (sh *shard) start(e *Engine) {
	*sh = shard{engine: e, table: newTable(), armed: never}
	sh.step = step{
		recoverUntil: e.recoverUntil,
		former:       e.former,
		drawToken:    func() uint64 { return e.token.Add(1) },
		newOrder:     sh.newOrder,
		nextArrival:  sh.nextArrival,
		subscribed:   e.subscribed,
	}
	sh.timer = e.clock.after(time.Hour, sh.tick)
	sh.timer.Stop()
}

// newOrder returns the order of a contender that arrives at wall. The result is larger than all
// earlier results, even if the clock was set back.
func (sh *shard) newOrder(wall int64) order {
	sh.latest = max(sh.latest, float64(wall)/1000)
	return order{sh.latest, sh.nextArrival()}
}

func (sh *shard) nextArrival() uint64 {
	sh.arrivals++
	return sh.arrivals
}

// beginStep starts a step, which has no effects yet. The caller holds mu.
func (sh *shard) beginStep() *step {
	s := &sh.step
	s.now, s.wall = sh.engine.clock.read()
	s.window = time.Duration(sh.engine.window.Load())
	s.grace = time.Duration(sh.engine.grace.Load())
	return s
}

// find returns a mutex and its stats. If the table does not have the mutex, find makes a new one.
func (sh *shard) find(name string, hash uint64) (*mutex, mutexStats) {
	m := sh.table.get(hash, name)
	if m == nil {
		m = newMutex(name, hash)
		m.replyAfter = sh.seq // the change that removed it may not be durable yet
		return m, mutexStats{}
	}
	return m, statsOf(m, true)
}

// open returns a mutex at the present time, and a step on it that has no effects yet.
func (sh *shard) open(name string, hash uint64) (m *mutex, s *step, before mutexStats) {
	s = sh.beginStep()
	m, before = sh.find(name, hash)
	if m.advance(s); s.hasEffects() {
		sh.finishStep(m, s, before)
		before = statsOf(m, !m.idle())
	}
	return m, s, before
}

// finishStep ends a step on m. It records the step, and keeps m in memory only if m has state.
// before has the stats of m when the step began.
func (sh *shard) finishStep(m *mutex, s *step, before mutexStats) {
	sh.finishRecorded(m, s, before, sh.engine.sequencer.record(m, s))
}

// finishRecorded is finishStep for a recorded step.
func (sh *shard) finishRecorded(m *mutex, s *step, before mutexStats, replyAfter simba.Seq) {
	if replyAfter != 0 {
		sh.seq, m.replyAfter = replyAfter, replyAfter
	}
	after := statsOf(m, true)
	sh.watched.touch(m, s, before, after)
	sh.count(s, before, after)
	s.forget()
	idle := m.idle()
	if after.bytes = 0; !idle {
		after.bytes = m.bytes() // idle may have dropped a part
	}
	if after.bytes != before.bytes {
		sh.engine.bytes.Add(after.bytes - before.bytes)
	}
	switch {
	case idle && before.known:
		sh.table.remove(m)
		sh.due.remove(m)
		return
	case idle:
		return
	case !before.known:
		sh.table.add(m)
	}
	if at := m.deadline(s.recoverUntil, s.former); at != never {
		sh.due.set(m, at)
		sh.arm(sh.due[0].at, s.now)
	}
}

// mutexStats are the figures of a mutex that a step may change.
type mutexStats struct {
	known            bool // the table has the mutex
	bytes            int64
	owned            bool
	blocked, polling int64
	extra            *extra
	queue            uint64 // version of the queue
	reserved         *entry
}

func statsOf(m *mutex, known bool) mutexStats {
	c := mutexStats{known: known, owned: m.owned()}
	if known {
		c.bytes = m.bytes()
	}
	if m.extra != nil {
		c.blocked = m.extra.blocked
		c.polling = int64(len(m.extra.all)) - c.blocked
		c.extra, c.queue, c.reserved = m.extra, m.extra.version, m.extra.reserved
	}
	return c
}

func (sh *shard) count(s *step, before, after mutexStats) {
	c := &sh.stats
	c.Blocked += after.blocked - before.blocked
	c.Polling += after.polling - before.polling
	if after.owned != before.owned {
		if after.owned {
			c.Held++
		} else {
			c.Held--
		}
	}
	for _, e := range s.events {
		switch e.Kind {
		case simba.EventAcquired:
			c.Acquired++
			if e.Reason == reasonHandoff {
				c.Handoffs++
			}
		case simba.EventReleased:
			c.Released++
		case simba.EventExpired:
			c.Expired++
		case simba.EventBroken:
			c.Broken++
		}
	}
	for _, held := range s.tenureLengths {
		c.TenureLengths.Add(held)
	}
	if s.changed && len(s.events) == 0 {
		c.Renewed++
	}
}

// arm sets the timer, unless it already fires early enough.
func (sh *shard) arm(at, now simba.Instant) {
	if at >= sh.armed {
		return
	}
	sh.armed = at
	sh.timer.Reset(max(at.Sub(now), 0))
}

// tickPart bounds the number of mutexes that the timer advances before it unlocks the shard.
const tickPart = 128

// tick runs when the timer fires.
func (sh *shard) tick() {
	for sh.tickOnce() {
	}
}

// tickOnce advances some of the mutexes that are due, and reports whether more are due. Each call
// locks Engine.life anew, so that Stop does not wait for all due mutexes.
func (sh *shard) tickOnce() (more bool) {
	if !sh.engine.enter() {
		return false
	}
	defer sh.engine.leave()
	seq, more := sh.advance()
	err := sh.engine.sequencer.commit(seq)
	return more && err == nil // the journal itself reports its failure
}

// advance advances some of the mutexes that are due. It returns the Seq to commit, and whether more
// are due.
func (sh *shard) advance() (seq simba.Seq, more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.armed = never
	for range tickPart {
		s := sh.beginStep()
		if len(sh.due) == 0 {
			return sh.seq, false
		}
		if sh.due[0].at > s.now {
			sh.arm(sh.due[0].at, s.now)
			return sh.seq, false
		}
		m := sh.due[0].m
		before := statsOf(m, true)
		m.advance(s)
		if at := m.deadline(s.recoverUntil, s.former); at == never {
			sh.due.remove(m)
		} else {
			sh.due.postpone(m, at)
		}
		sh.finishStep(m, s, before)
	}
	return sh.seq, true
}
