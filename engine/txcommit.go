package engine

import (
	"cmp"
	"slices"

	"github.com/simba-resp/simba-resp"
)

// This file has the commit of a transaction. (Engine.Commit is different: it waits for the
// journal.) The commit locks the shards of all keys, and runs one step for each mutex. It advances
// every mutex to the present time, and compares the mutex with the state that the transaction has
// read. Then it makes all changes and records them as one.

// commitOne commits a transaction of one key: an ordinary step.
func (t *tx) commitOne(k *txKey) (simba.Seq, error) {
	sh := k.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	m, s, before := sh.open(k.name, k.hash)
	err := k.finish(m, s, before)
	return m.replyAfter, err
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
			parts[i].apply(parts[i].m, &parts[i].step)
		}
		seq = t.engine.sequencer.recordAll(parts, t.otherMessages(parts))
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
// scripts of Simba on the JVM and the steps publish notices of grants and releases. The notices of
// the steps are right.
func (t *tx) otherMessages(parts []part) []message {
	if len(t.messages) == 0 {
		return nil
	}
	announced := make(map[message]bool)
	for i := range parts {
		channel, s := simba.MutexChannel(parts[i].name), &parts[i].step
		announced[message{channel, simba.AcquiredNotice(s.began)}] = s.began != ""
		announced[message{channel, simba.ReleasedNotice(s.last)}] = s.freed
	}
	return slices.DeleteFunc(t.messages, func(msg message) bool { return announced[msg] })
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
		p.step.effects = effects{} // the shard's step keeps its own lists
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
