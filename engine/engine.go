package engine

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Config is the configuration of an Engine. Only Clock must be set.
type Config struct {
	Clock         Clock
	HandoffWindow time.Duration // length of a reservation for a polling waiter; 0 = none
	QueueGrace    time.Duration // how long an absent polling waiter keeps its queue entry
	Notices       simba.Notices // nil = Silent
	PlainChannels bool          // also send offers to simba.PlainContenderChannel
	HistoryLen    int           // number of events kept for History; 0 = 10,000

	// Hash returns the hash that selects a mutex's shard. Nil means a hash that is random for every
	// engine, so that nobody can choose names which collide.
	Hash func(name string) uint64
}

// Engine keeps mutexes in memory and their changes in a Journal. It is a simba.Backend. Its methods
// are safe for concurrent use.
type Engine struct {
	clock        Clock
	hash         func(name string) uint64
	recoverUntil simba.Instant // end of the recovery delay
	former       uint64        // see step.former
	sequencer    sequencer
	token        atomic.Uint64 // the last fencing token given
	window       atomic.Int64  // Config.HandoffWindow
	grace        atomic.Int64  // Config.QueueGrace
	bytes        atomic.Int64  // sum of mutex.bytes
	queueLimit   atomic.Int64  // of queue.bytes; 0 = none

	life    sync.RWMutex // calls and timers hold it for reading, Start and Stop for writing
	stopped bool         // guarded by life

	shards [1 << shardBits]shard
}

var _ simba.Backend = (*Engine)(nil)

// New starts an engine with the state that the journal recovered. The caller must call Stop, and
// then close the journal.
func New(cfg Config, j Journal, rec Recovery) (*Engine, error) {
	if cfg.Notices == nil {
		cfg.Notices = Silent{}
	}
	if cfg.Hash == nil {
		seed := maphash.MakeSeed()
		cfg.Hash = func(name string) uint64 { return maphash.String(seed, name) }
	}
	e := &Engine{hash: cfg.Hash, stopped: true}
	e.SetHandoffWindow(cfg.HandoffWindow)
	e.SetQueueGrace(cfg.QueueGrace)
	e.sequencer.notices, e.sequencer.missedOffer = cfg.Notices, e.missedOffer
	e.sequencer.plain = cfg.PlainChannels
	e.sequencer.history.Limit = cmp.Or(cfg.HistoryLen, 10000)
	if err := e.Start(cfg.Clock, j, rec); err != nil {
		return nil, err
	}
	return e, nil
}

// Start starts an engine that has stopped, with the state that another journal recovered. Only the
// settings stay. No caller may still have a ticket, a watch or a transaction of the time before. After
// an error the engine has stopped.
func (e *Engine) Start(clock Clock, j Journal, rec Recovery) error {
	e.life.Lock()
	defer e.life.Unlock()
	e.clock, e.former = clock, rec.Token
	e.recoverUntil = clock.Now().Add(rec.Delay)
	e.token.Store(rec.Token)
	e.bytes.Store(0)
	e.sequencer.start(j, rec)
	for i := range e.shards {
		e.shards[i].start(e)
	}
	if err := e.restore(rec.Leases); err != nil {
		return fmt.Errorf("recover leases: %w", err)
	}
	e.stopped = false
	return nil
}

// restore loads the leases of earlier runs. No call and no timer runs meanwhile. Then the timers expire
// the leases that ended while the engine was down.
func (e *Engine) restore(leases iter.Seq2[simba.Lease, error]) error {
	if leases == nil {
		return nil
	}
	for l, err := range leases {
		if err != nil {
			return err
		}
		sh, hash := e.shard(l.Mutex)
		m := newMutex(l.Mutex, hash)
		m.load(l)
		sh.table.add(m)
		sh.stats.Held++
		e.bytes.Add(m.bytes())
		if at := m.deadline(e.recoverUntil, e.former); at != never {
			sh.due.set(m, at)
		}
	}
	for i := range e.shards {
		sh := &e.shards[i]
		sh.mu.Lock()
		if len(sh.due) > 0 {
			sh.arm(sh.due[0].at, e.clock.Now())
		}
		sh.mu.Unlock()
	}
	return nil
}

// Stop stops the engine. It waits for the calls that run. Later calls that can return an error
// return simba.ErrStopped. Leases stay in the journal. Stop is idempotent.
func (e *Engine) Stop() {
	e.life.Lock()
	e.stopped = true
	e.life.Unlock()
	for i := range e.shards {
		e.shards[i].timer.Stop()
	}
}

// enter begins a call, which ends with leave. It returns false if the engine has stopped.
func (e *Engine) enter() bool {
	e.life.RLock()
	if e.stopped {
		e.life.RUnlock()
		return false
	}
	return true
}

func (e *Engine) leave() { e.life.RUnlock() }

// SetHandoffWindow sets how long later reservations last; 0 = no reservations.
func (e *Engine) SetHandoffWindow(d time.Duration) { e.window.Store(int64(d)) }

// SetQueueGrace sets the queue grace for polling waiters that ask from now on.
func (e *Engine) SetQueueGrace(d time.Duration) { e.grace.Store(int64(d)) }

func (e *Engine) shard(name string) (*shard, uint64) {
	hash := e.hash(name)
	return &e.shards[shardOf(hash)], hash
}

// subscribed reports whether a contender can receive the notice of an offer.
func (e *Engine) subscribed(mutex, contender string) bool {
	n := e.sequencer.notices
	return n.Any() && (n.Subscribed(simba.ContenderChannel(mutex, contender)) ||
		e.sequencer.plain && n.Subscribed(simba.PlainContenderChannel(mutex, contender)))
}

// do runs one transition on a mutex and returns the Seq that the result waits for.
func (e *Engine) do(name string, transition func(m *mutex, s *step)) (simba.Seq, error) {
	if !e.enter() {
		return 0, simba.ErrStopped
	}
	defer e.leave()
	return e.run(name, transition), nil
}

func (e *Engine) run(name string, transition func(m *mutex, s *step)) simba.Seq {
	sh, hash := e.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s := sh.beginStep()
	m, before := sh.find(name, hash)
	transition(m, s)
	sh.finishStep(m, s, before)
	return m.replyAfter
}

// missedOffer handles an offer whose notice reached no subscriber.
func (e *Engine) missedOffer(name, contender string) simba.Seq {
	return e.run(name, func(m *mutex, s *step) { m.missOffer(s, contender) })
}

// Commit implements simba.Committer.
func (e *Engine) Commit(seq simba.Seq) error {
	if !e.enter() {
		return simba.ErrStopped
	}
	defer e.leave()
	return e.sequencer.commit(seq)
}
