package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/bugs"
)

var _ simba.Keyspace = (*Engine)(nil)

// tx is a transaction. It has copies of the state that it has read, which its own changes alter.
// At Commit it changes the mutexes, if they are still in the state that it has read.
type tx struct {
	engine   *Engine
	now      time.Time
	keys     []*txKey          // in the order of their first use
	byName   map[string]*txKey // if there are many
	messages []message
	stopped  bool // the engine has stopped
	tooLarge bool
	over     bool

	first txKey // room for one key, which is what most have
	one   [1]*txKey
}

// txKey is a mutex in a transaction.
type txKey struct {
	name  string
	hash  uint64
	shard *shard
	index int // of the shard: they are locked in this order

	// The state that was read.
	readLock   simba.Lock
	readQueue  []simba.Place
	queueRead  bool
	reserved   string        // the contender that the mutex is reserved for
	recovering bool          // no new tenure may begin
	kept       time.Duration // how long the reservation or the recovery delay lasts
	refused    bool          // lock shows the reservation
	rests      simba.Seq
	watch      *watch // nil = it may change and change back
	seen       versions

	// The same state with the transaction's own changes.
	lock   simba.Lock
	queue  queueCopy
	ended  uint64 // the token of the tenure that was dropped last
	hidden bool   // the token of the present tenure was dropped

	// Tokens that were reserved.
	next  uint64 // of the tenure that is to begin; 0 = none
	shown uint64 // the largest that its user knows; 0 = none

	// The work of Commit.
	work     []op
	dequeued []string
	room     [1]op
	did      *step // what it did
}

// op is a change of a mutex by a transaction.
type op struct {
	kind      opKind
	renew     bool
	lock      simba.Lock
	contender string
	score     float64
	token     uint64 // of the tenure that it begins, if that is reserved; else 0
}

type opKind uint8

const (
	opTake opKind = iota
	opChange
	opDrop
	opEnqueue
)

// idleTxs are transactions for reuse.
var idleTxs = sync.Pool{New: func() any { return new(tx) }}

// Begin implements simba.Keyspace.
func (e *Engine) Begin() simba.Tx {
	t := idleTxs.Get().(*tx)
	t.engine, t.now = e, e.clock.wallNow()
	t.keys = t.one[:0]
	return &handle{t}
}

// handle is a tx for its user. The user may Close it again when another user has the tx already.
type handle struct{ *tx }

// Close implements simba.Tx.
func (h *handle) Close() {
	if h.tx == nil {
		return
	}
	t := h.tx
	h.tx = nil
	for _, k := range t.keys {
		k.unwatch()
	}
	*t = tx{}
	idleTxs.Put(t)
}

// Now implements simba.Tx.
func (t *tx) Now() time.Time { return t.now }

// key returns the mutex as the transaction sees it.
func (t *tx) key(name string) *txKey {
	if k := t.find(name); k != nil {
		return k
	}
	k := t.add(name)
	if t.tooLarge { // Commit will refuse it
		k.queueRead = true
		return k
	}
	t.read(k, k.load)
	return k
}

func (t *tx) find(name string) *txKey {
	if t.byName != nil {
		return t.byName[name]
	}
	for _, k := range t.keys {
		if k.name == name {
			return k
		}
	}
	return nil
}

func (t *tx) add(name string) *txKey {
	t.tooLarge = t.tooLarge || len(t.keys) == simba.MaxTxKeys
	k := &t.first
	if len(t.keys) > 0 || t.tooLarge {
		k = new(txKey)
	}
	k.name = name
	k.shard, k.hash = t.engine.shard(name)
	k.index = shardOf(k.hash)
	k.work = k.room[:0]
	if t.tooLarge { // Commit will refuse it
		return k
	}
	t.keys = append(t.keys, k)
	switch {
	case t.byName != nil:
		t.byName[name] = k
	case len(t.keys) >= indexFrom:
		t.byName = make(map[string]*txKey, 2*indexFrom)
		for _, k := range t.keys {
			t.byName[k.name] = k
		}
	}
	return k
}

func (k *txKey) load(m *mutex, s *step) {
	k.readLock = m.lock(s.now)
	k.lock = k.readLock
	k.recovering, k.reserved, k.refused = s.now < s.recoverUntil, m.reservedFor(), false
	switch {
	case k.recovering:
		k.kept = left(s.recoverUntil, s.now)
	case k.reserved != "":
		k.kept = left(m.contention.until, s.now)
	}
}

// read brings a mutex to the present, and then calls load.
func (t *tx) read(k *txKey, load func(m *mutex, s *step)) {
	e, sh := t.engine, k.shard
	if !e.enter() {
		t.stopped = true
		return
	}
	defer e.leave()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s := sh.begin()
	m, before := sh.find(k.name, k.hash)
	m.advance(s)
	sh.finish(m, s, before)
	load(m, s)
	k.rests = m.rests
}

// Watch implements simba.Tx.
func (t *tx) Watch(name string, queue bool) {
	k := t.find(name)
	if k == nil {
		k = t.add(name)
	}
	if t.tooLarge {
		return
	}
	t.read(k, func(m *mutex, s *step) {
		k.load(m, s)
		if k.watch == nil {
			k.watch = k.shard.watch(name)
		}
		k.seen.add(k.watch, queue)
	})
}

// Resume implements simba.Tx.
func (t *tx) Resume() bool {
	t.now = t.engine.clock.wallNow()
	same := !t.stopped
	for _, k := range t.keys {
		t.read(k, func(m *mutex, s *step) {
			k.load(m, s)
			same = same && k.isUnwatched()
		})
	}
	return same
}

// isUnwatched reports whether the watched parts of the key have not changed.
func (k *txKey) isUnwatched() bool {
	return k.watch == nil || k.seen.same(k.watch) || bugs.On(bugs.LostUpdate)
}

// isFresh reports whether the key is still in the state that was read. The caller holds the lock
// of its shard.
func (k *txKey) isFresh(m *mutex, s *step) bool {
	return k.isUnwatched() && m.isAs(k.readLock, s.now) && k.reserved == m.reservedFor() && (!k.queueRead || m.queueIs(k.readQueue))
}

func (k *txKey) unwatch() {
	if k.watch == nil {
		return
	}
	k.shard.mu.Lock()
	defer k.shard.mu.Unlock()
	k.shard.unwatch(k.name, k.watch)
}

// Lock implements simba.Tx.
func (t *tx) Lock(name string) simba.Lock { return t.key(name).lock }

// Open implements simba.Tx.
func (t *tx) Open(name, owner string) bool {
	k := t.key(name)
	switch {
	case k.lock.Exists() && !k.refused:
		return false
	case !k.recovering && (k.reserved == "" || k.reserved == owner):
		return true
	}
	k.refused = true
	k.lock = t.timed(simba.Lock{Token: pending, Owner: k.reserved, TTL: k.kept})
	return false
}

// pending is the token of a tenure that is to begin.
const pending = ^uint64(0)

// Take implements simba.Tx.
func (t *tx) Take(name string, l simba.Lock) {
	k := t.key(name)
	k.work = append(k.work, op{kind: opTake, lock: l, token: k.next})
	if l.TTL == simba.KeepTTL {
		l.TTL, l.EndsAt = k.lock.TTL, k.lock.EndsAt
	} else {
		l = t.timed(l)
	}
	k.lock, k.refused = l, false
	if k.lock.Token = k.next; k.next == 0 {
		k.lock.Token = pending
	}
	k.next, k.ended, k.hidden = 0, 0, false
	if k.queueRead {
		k.queue.remove(l.Owner)
	}
}

// Change implements simba.Tx.
func (t *tx) Change(name string, l simba.Lock, renew bool) {
	k := t.key(name)
	k.change(l, renew)
	was := k.lock
	if k.lock = t.timed(l); !renew {
		k.lock.TTL, k.lock.EndsAt = was.TTL, was.EndsAt
	}
	k.lock.Token = was.Token
}

// change adds a change to the work, or merges it with the change before. So a key that is changed
// a thousand times is changed once.
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

// timed returns a lock as a later read returns it, if it is written now.
func (t *tx) timed(l simba.Lock) simba.Lock {
	now := t.now.UnixMilli()
	switch {
	case l.EndsAt != 0:
		l.TTL = time.Duration(l.EndsAt-now) * time.Millisecond
	case l.TTL != simba.Endless:
		l.EndsAt = now + l.TTL.Milliseconds()
	}
	return l
}

// Drop implements simba.Tx.
func (t *tx) Drop(name string) {
	k := t.key(name)
	k.work = append(k.work, op{kind: opDrop})
	k.ended = 0
	if is := k.lock.Token; !k.refused && !k.hidden && is != pending {
		k.ended = is
	}
	k.lock, k.refused, k.hidden = simba.Lock{}, false, false
}

// Queue implements simba.Tx.
func (t *tx) Queue(name string) []simba.Place {
	return t.queued(name).queue.inOrder()
}

// queued is key for a transaction that depends on the queue, too.
func (t *tx) queued(name string) *txKey {
	k := t.key(name)
	if k.queueRead {
		return k
	}
	t.read(k, func(m *mutex, _ *step) {
		k.queueRead = true
		k.readQueue = m.queueState()
		k.queue = queueCopy{list: k.readQueue}
	})
	for i := range k.work {
		if o := &k.work[i]; o.kind == opTake {
			k.queue.remove(o.lock.Owner)
		}
	}
	return k
}

// Place implements simba.Tx.
func (t *tx) Place(name, contender string) (simba.Place, bool) {
	p := &t.queued(name).queue
	i, ok := p.find(contender)
	if !ok {
		return simba.Place{}, false
	}
	return p.list[i], true
}

// Enqueue implements simba.Tx.
func (t *tx) Enqueue(name, contender string, score float64) {
	k := t.queued(name)
	k.work = append(k.work, op{kind: opEnqueue, contender: contender, score: score})
	k.dequeued = slices.DeleteFunc(k.dequeued, func(c string) bool { return c == contender })
	k.queue.add(simba.Place{Contender: contender, Score: score})
}

// Dequeue implements simba.Tx.
func (t *tx) Dequeue(name, contender string) {
	k := t.queued(name)
	k.dequeued = append(k.dequeued, contender)
	k.queue.remove(contender)
}

// Publish implements simba.Tx.
func (t *tx) Publish(channel, payload string) {
	if t.tooLarge = t.tooLarge || len(t.messages) == simba.MaxTxKeys; !t.tooLarge {
		t.messages = append(t.messages, message{channel, payload})
	}
}

// TooLarge implements simba.Tx.
func (t *tx) TooLarge() bool { return t.tooLarge }

// Discard implements simba.Tx.
func (t *tx) Discard() {
	t.messages = nil
	for _, k := range t.keys {
		k.work, k.dequeued = k.room[:0], nil
		k.ended, k.hidden, k.next = 0, false, 0
		k.lock, k.queue, k.refused = k.readLock, queueCopy{list: k.readQueue}, false
	}
}

// Commit implements simba.Tx.
func (t *tx) Commit(context.Context) (simba.Seq, error) {
	if t.stopped || t.over || !t.engine.enter() {
		return 0, simba.ErrStopped
	}
	defer t.engine.leave()
	t.over = true
	if t.tooLarge {
		return 0, simba.ErrTooLarge
	}
	if len(t.keys) == 1 && len(t.messages) == 0 {
		return t.commitOne(&t.first)
	}
	return t.commitAll()
}
