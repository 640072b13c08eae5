package engine

import (
	"cmp"
	"slices"
	"strings"

	"github.com/simba-resp/simba-resp"
)

// This file has the commit of a transaction. (Engine.Commit is different: it waits for the
// journal.) The commit locks the shards of all keys, and runs one step for each mutex. It advances
// every mutex to the present time, and compares the mutex with the state that the transaction has
// read. Then it makes all changes and records them as one.

func (k *txKey) isReadOnly() bool {
	return len(k.work) == 0 && len(k.dequeued) == 0 && k.given == 0 && k.refused == ""
}

// commitOne commits a transaction of one key: an ordinary step.
func (t *tx) commitOne(k *txKey) (simba.Seq, error) {
	sh := k.shard
	if k.isReadOnly() && k.watch == nil && k.reads == 1 {
		return k.replyAfter, nil // the key was read at one instant, so nothing can conflict
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	m, s, before := sh.open(k.name, k.hash)
	err := k.finish(m, s, before)
	return m.replyAfter, err
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
	if k.isReadOnly() {
		return
	}
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

// part is the part of a commit that concerns one mutex.
type part struct {
	*txKey
	m          *mutex
	step       step
	before     mutexStats
	replyAfter simba.Seq
}

// commitAll commits a transaction of any number of keys.
func (t *tx) commitAll() (seq simba.Seq, err error) {
	unlock := t.lockShards()
	defer unlock()
	parts, err := t.prepare()
	if err == nil {
		for i := range parts {
			parts[i].did = &parts[i].step
			parts[i].apply(parts[i].m, &parts[i].step)
		}
		seq = t.engine.sequencer.recordAll(parts, t.otherMessages())
		for i := range parts {
			p := &parts[i]
			p.shard.finishRecorded(p.m, &p.step, p.before, p.replyAfter)
		}
	}
	for i := range parts {
		seq = max(seq, parts[i].m.replyAfter)
	}
	return seq, err
}

// otherMessages returns the messages that the steps do not publish themselves. Both the Redis
// scripts of Simba on the JVM and the steps publish notices of grants and releases.
func (t *tx) otherMessages() []message {
	return slices.DeleteFunc(t.messages, func(msg message) bool {
		name, ok := simba.CutMutexChannel(msg.channel)
		if !ok {
			return false
		}
		k := t.find(name)
		return k != nil && k.did.announces(msg.payload)
	})
}

// announces reports whether the step has made the grant or the release that a script's notice
// names. The step itself then publishes the right notices, so the script's notice is superfluous.
func (s *step) announces(payload string) bool {
	if owner, ok := strings.CutPrefix(payload, simba.AcquiredNotice("")); ok {
		return s.began != "" && s.began == owner
	}
	owner, ok := strings.CutPrefix(payload, simba.ReleasedNotice(""))
	return ok && s.freed && s.last == owner
}

// lockShards locks the shards of all keys, each once, in order. The topmost bits of a hash select the
// shard, so the order of the hashes is that of the shards.
func (t *tx) lockShards() (unlock func()) {
	list := slices.Clone(t.keys)
	slices.SortFunc(list, func(a, b *txKey) int { return cmp.Compare(a.hash, b.hash) })
	list = slices.CompactFunc(list, func(a, b *txKey) bool { return a.shard == b.shard })
	for _, k := range list {
		k.shard.mu.Lock()
	}
	return func() {
		for _, k := range list {
			k.shard.mu.Unlock()
		}
	}
}

// prepare advances every mutex to the present time. It returns an error if the transaction cannot
// change one of the mutexes.
func (t *tx) prepare() (parts []part, err error) {
	now, wall := t.engine.clock.read()
	parts = make([]part, len(t.keys))
	for i, k := range t.keys {
		p := &parts[i]
		p.txKey = k
		p.step = *k.shard.beginStep()
		p.step.events, p.step.offers = nil, nil // the shard's step keeps its own lists
		p.step.wakes, p.step.tenureLengths = nil, nil
		p.step.now, p.step.wall = now, wall
		p.m, p.before = k.shard.find(k.name, k.hash)
		if p.m.advance(&p.step); p.step.hasEffects() {
			k.shard.finishStep(p.m, &p.step, p.before)
			p.before = statsOf(p.m, !p.m.idle())
		}
		err = cmp.Or(err, k.check(p.m, &p.step))
	}
	return parts, err
}
