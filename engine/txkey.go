package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/simba-resp/simba-resp"
)

// txKey is a mutex in a transaction.
type txKey struct {
	name  string
	hash  uint64
	shard *shard
	read  readState
	given uint64 // the largest token that the caller has learned; 0 = none
	shownState
	changes
	room [1]op // memory for changes.work
}

// readState is what the transaction has read of a mutex. The commit compares it with the mutex.
type readState struct {
	lockRead   bool // the fields up to kept are set
	lock       simba.Lock
	reserved   string        // the waiter with the reservation; "" = none
	recovering bool          // the recovery delay was not over
	kept       time.Duration // how long the reservation or the recovery delay still lasts

	queueRead bool // queue and queueFull are set
	queue     []simba.QueueMember
	queueFull bool

	// If the transaction watches the mutex, no change may be undone either.
	watch *watch // nil = it does not
	seen  versions
}

// shownState is a mutex with the changes of the transaction, as the transaction shows it.
type shownState struct {
	lock      simba.Lock
	pretended bool // lock shows an owner that the mutex does not have: see MayTake
	queue     txQueue
	ended     uint64 // the token of the last tenure that Drop ended
	hidden    bool   // DropToken has hidden the token of the present tenure
	next      uint64 // the token drawn for the next tenure; 0 = none
}

// changes are the changes that the commit makes.
type changes struct {
	work     []op
	dequeued []string
	refused  string // the contender of the last Refuse; "" = none
	seenEnd  int64  // the EndsAt that it saw
}

type op struct {
	kind      opKind
	renew     bool
	lock      simba.Lock
	contender string
	score     float64
	token     uint64 // the token of the tenure that the op begins; 0 = not drawn yet
}

type opKind uint8

const (
	opTake opKind = iota
	opChange
	opDrop
	opEnqueue
)

func (k *txKey) load(m *mutex, s *step) {
	r := &k.read
	r.lockRead, r.lock = true, m.lock(s.now)
	switch r.recovering, r.reserved = s.now < s.recoverUntil, m.reservedFor(); {
	case r.recovering:
		r.kept = remaining(s.recoverUntil, s.now)
	case r.reserved != "":
		r.kept = remaining(m.extra.until, s.now)
	}
	k.lock = r.lock
}

// discard forgets the changes of the transaction.
func (k *txKey) discard() {
	k.shownState = shownState{lock: k.read.lock, queue: txQueue{list: k.read.queue}}
	k.changes = changes{work: k.room[:0]}
}

// watchVersion watches the mutex until the transaction ends, and returns its version. The caller
// holds shard.mu.
func (k *txKey) watchVersion(queue bool) uint64 {
	r := &k.read
	if r.watch == nil {
		r.watch = k.shard.watch(k.name)
	}
	i := versionIndex(queue)
	r.seen[i] = cmp.Or(r.seen[i], r.watch.versions[i])
	return r.watch.versions[i]
}

func (k *txKey) watchUnchanged() bool {
	for i, seen := range k.read.seen {
		if seen != 0 && seen != k.read.watch.versions[i] {
			return false
		}
	}
	return true
}

// isFresh reports whether the state that the transaction has read is unchanged. The caller holds
// shard.mu.
func (k *txKey) isFresh(m *mutex, s *step) bool {
	r := &k.read
	return k.watchUnchanged() && m.isAs(r.lock, s.now) && r.reserved == m.reservedFor() && (!r.queueRead || m.queueIs(r.queue))
}

func (k *txKey) unwatch() {
	if k.read.watch == nil {
		return
	}
	k.shard.mu.Lock()
	defer k.shard.mu.Unlock()
	k.shard.unwatch(k.name, k.read.watch)
}

// change adds a change to the work. It merges successive changes, so that the commit makes one
// change of a key that a script has changed a thousand times.
func (k *txKey) change(l simba.Lock, renew bool) {
	n := len(k.work)
	if n == 0 || k.work[n-1].kind != opChange {
		k.work = append(k.work, op{kind: opChange, lock: l, renew: renew})
		return
	}
	last := &k.work[n-1]
	if !renew {
		l.TTL, l.EndsAt = last.lock.TTL, last.lock.EndsAt
	}
	last.lock, last.renew = l, last.renew || renew
}

// finish makes the changes of the key in a step, or returns why it made none.
func (k *txKey) finish(m *mutex, s *step, before mutexStats) error {
	if err := k.check(m, s); err != nil {
		return err
	}
	k.apply(m, s)
	k.shard.finishStep(m, s, before)
	return nil
}

// check returns why the transaction cannot change the key, or nil.
func (k *txKey) check(m *mutex, s *step) error {
	switch {
	case !k.isFresh(m, s):
		return simba.ErrConflict
	case s.now < s.recoverUntil && slices.ContainsFunc(k.work, func(o op) bool { return o.kind == opTake || o.kind == opChange && !m.owned() }):
		return simba.ErrRecovering
	}
	return nil
}

func (k *txKey) apply(m *mutex, s *step) {
	s.spent = max(s.spent, k.given)
	for i := range k.work {
		o := &k.work[i]
		s.chosen = o.token
		switch o.kind {
		case opTake:
			m.take(s, o.lock)
		case opChange:
			m.change(s, o.lock, o.renew)
		case opDrop:
			m.drop(s)
		case opEnqueue:
			m.enqueueAt(s, o.contender, o.score)
		}
	}
	s.chosen = 0 // if no tenure has begun
	if k.refused != "" {
		m.noteRefusal(s, k.refused, k.seenEnd)
	}
	m.conclude(s, k.dequeued)
}
