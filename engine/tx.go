package engine

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

var _ simba.Keyspace = (*Engine)(nil)

// tx is a transaction. It keeps copies of the mutexes that it has read, and makes its changes in
// these copies. The commit changes the mutexes themselves, if they have not changed since the
// transaction read them.
type tx struct {
	engine   *Engine
	now      time.Time         // zero = not read yet
	keys     []*txKey          // in the order of their first use
	byName   map[string]*txKey // nil = there are few keys
	messages []message
	stopped  bool // the engine has stopped
	tooLarge bool
	held     *mutex // the only mutex, whose shard UpdateOne has locked; nil = Update

	first txKey // memory for one key: most transactions have no more
	one   [1]*txKey
}

// idleTxs are ended transactions whose memory beginTx reuses.
var idleTxs = sync.Pool{New: func() any { return new(tx) }}

// maxAttempts bounds how often Update runs a transaction.
const maxAttempts = 100

// Update implements simba.Keyspace.
func (e *Engine) Update(do func(simba.Tx) error) (seq simba.Seq, err error) {
	t := e.beginTx()
	defer t.end()
	for range maxAttempts {
		failed := do(t)
		if failed != nil {
			t.Discard()
		}
		var replyAfter simba.Seq
		replyAfter, err = t.commit()
		seq = max(seq, replyAfter)
		if err == nil {
			return seq, failed
		}
		if !errors.Is(err, simba.ErrConflict) {
			break
		}
		t.reset(e)
	}
	return seq, err
}

// UpdateOne implements simba.Keyspace.
func (e *Engine) UpdateOne(name string, do func(simba.Tx) error) (simba.Seq, error) {
	if !e.enter() {
		return 0, simba.ErrStopped
	}
	defer e.leave()
	t := e.beginTx()
	defer t.end() // after the shard is unlocked
	t.Now()
	k := t.add(name)
	k.shard.mu.Lock()
	defer k.shard.mu.Unlock()
	m, s, before := k.shard.open(k.name, k.hash)
	t.held = m
	k.load(m, s)
	err := do(t)
	if err != nil {
		t.Discard()
	}
	err = cmp.Or(k.finish(m, s, before), err)
	return m.replyAfter, err
}

// beginTx returns a transaction. The caller must call end.
func (e *Engine) beginTx() *tx {
	t := idleTxs.Get().(*tx)
	t.engine, t.keys = e, t.one[:0]
	return t
}

func (t *tx) reset(e *Engine) {
	for _, k := range t.keys {
		k.unwatch()
	}
	*t = tx{engine: e}
	t.keys = t.one[:0]
}

func (t *tx) end() {
	t.reset(nil)
	idleTxs.Put(t)
}

// Now implements simba.Tx. The transaction takes the time at its first read, because the caller may
// wait before that.
func (t *tx) Now() time.Time {
	if t.now.IsZero() {
		t.now = t.engine.clock.wallNow()
	}
	return t.now
}

// key returns the mutex as the transaction sees it.
func (t *tx) key(name string) *txKey {
	k := t.entry(name)
	if !k.read.lockRead {
		t.read(k, func(*mutex, *step) {})
	}
	return k
}

// entry is like key, but it does not read the mutex.
func (t *tx) entry(name string) *txKey {
	if k := t.find(name); k != nil {
		return k
	}
	return t.add(name)
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
	k.work = k.room[:0]
	if t.tooLarge { // the commit will fail, so t.keys need not grow
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

// read advances a mutex to the present time, and calls view with the shard locked. The first read
// of a mutex also calls load. If the transaction is too large, read does nothing: the commit will
// fail.
func (t *tx) read(k *txKey, view func(m *mutex, s *step)) {
	if t.tooLarge {
		return
	}
	if t.held != nil {
		view(t.held, &k.shard.step)
		return
	}
	t.Now()
	e, sh := t.engine, k.shard
	if !e.enter() {
		t.stopped = true
		return
	}
	defer e.leave()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	m, s, _ := sh.open(k.name, k.hash)
	if !k.read.lockRead {
		k.load(m, s)
	}
	view(m, s)
}

// Unchanged implements simba.Tx.
func (t *tx) Unchanged(name string, queue bool, version uint64) (same bool) {
	k := t.entry(name)
	t.read(k, func(*mutex, *step) { same = k.watchVersion(queue) == version })
	return same
}

// Lock implements simba.Tx.
func (t *tx) Lock(name string) simba.Lock { return t.key(name).lock }

// MayTake implements simba.Tx.
func (t *tx) MayTake(name, owner string) bool {
	k := t.key(name)
	switch {
	case k.lock.Exists() && !k.pretended:
		return false
	case !k.read.recovering && (k.read.reserved == "" || k.read.reserved == owner):
		return true
	}
	k.pretended = true
	k.lock = t.timed(simba.Lock{Token: pending, Owner: k.read.reserved, TTL: k.read.kept})
	return false
}

// pending is the token of a tenure that the commit will begin.
const pending = ^uint64(0)

// Refuse implements simba.Tx.
func (t *tx) Refuse(name, owner string) {
	k := t.key(name)
	k.refused, k.seenEnd = owner, k.lock.EndsAt
}

// Take implements simba.Tx.
func (t *tx) Take(name string, l simba.Lock) {
	k := t.key(name)
	k.work = append(k.work, op{kind: opTake, lock: l, token: k.next})
	if l.TTL == simba.KeepTTL {
		l.TTL, l.EndsAt = k.lock.TTL, k.lock.EndsAt
	} else {
		l = t.timed(l)
	}
	k.lock, k.pretended = l, false
	if k.lock.Token = k.next; k.next == 0 {
		k.lock.Token = pending
	}
	k.next, k.ended, k.hidden = 0, 0, false
	if k.read.queueRead {
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

// timed returns l with both TTL and EndsAt. It computes one of them from the other.
func (t *tx) timed(l simba.Lock) simba.Lock {
	now := t.Now().UnixMilli()
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
	if is := k.lock.Token; !k.pretended && !k.hidden && is != pending {
		k.ended = is
	}
	k.lock, k.pretended, k.hidden = simba.Lock{}, false, false
}

// Queue implements simba.Tx.
func (t *tx) Queue(name string) []simba.QueueMember {
	return t.queued(name).queue.inOrder()
}

// queued is like key, but it also reads the queue.
func (t *tx) queued(name string) *txKey {
	k := t.entry(name)
	if k.read.queueRead {
		return k
	}
	t.read(k, func(m *mutex, _ *step) {
		k.read.queueRead, k.read.queueFull = true, t.engine.queueFull(m)
		k.read.queue = m.members()
		k.queue = txQueue{list: k.read.queue}
	})
	for i := range k.work {
		if o := &k.work[i]; o.kind == opTake {
			k.queue.remove(o.lock.Owner)
		}
	}
	return k
}

// Queued implements simba.Tx.
func (t *tx) Queued(name, contender string) (simba.QueueMember, bool) {
	p := &t.queued(name).queue
	i, ok := p.find(contender)
	if !ok {
		return simba.QueueMember{}, false
	}
	return p.list[i], true
}

// QueueFull implements simba.Tx.
func (t *tx) QueueFull(name string) bool { return t.queued(name).read.queueFull }

// Enqueue implements simba.Tx.
func (t *tx) Enqueue(name, contender string, score float64) {
	k := t.queued(name)
	k.work = append(k.work, op{kind: opEnqueue, contender: contender, score: score})
	// An earlier Dequeue of the contender has no effect any more.
	k.dequeued = slices.DeleteFunc(k.dequeued, func(c string) bool { return c == contender })
	k.queue.add(simba.QueueMember{Contender: contender, Score: score})
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
		k.discard()
	}
}

// commit makes the changes of the transaction, or returns why it made none. The Seq also covers the
// state that the transaction has read.
func (t *tx) commit() (simba.Seq, error) {
	if t.stopped || !t.engine.enter() {
		return 0, simba.ErrStopped
	}
	defer t.engine.leave()
	if t.tooLarge {
		return 0, simba.ErrTooLarge
	}
	if len(t.keys) == 1 && len(t.messages) == 0 {
		return t.commitOne(&t.first)
	}
	return t.commitAll()
}
