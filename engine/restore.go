package engine

import (
	"iter"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/simba-resp/simba-resp"
)

// chain is a linked list of the recovered mutexes of one shard.
type chain struct {
	first *mutex
	len   int
}

// restore loads the leases of earlier runs before any call runs. There may be millions of leases.
// So each shard allocates its table when the number of its mutexes is known.
func (e *Engine) restore(leases iter.Seq2[simba.Lease, error]) error {
	if leases == nil {
		return nil
	}
	var chains [1 << shardBits]chain
	for l, err := range leases {
		if err != nil {
			return err
		}
		hash := e.hash(l.Mutex)
		m := newMutex(l.Mutex, hash)
		m.load(l)
		c := &chains[shardOf(hash)]
		m.next, c.first = c.first, m
		c.len++
	}
	var taken atomic.Int32
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := taken.Add(1) - 1; int(i) < len(chains); i = taken.Add(1) - 1 {
				e.shards[i].restore(chains[i])
			}
		})
	}
	workers.Wait()
	return nil
}

// restore adds mutexes to the empty shard. The timer then expires leases that ended while the
// engine was down.
func (sh *shard) restore(c chain) {
	if c.len == 0 {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.table = newTable(c.len)
	sh.due = make(deadlines, 0, c.len)
	sh.counts.held = int64(c.len)
	bytes := int64(0)
	for m := c.first; m != nil; {
		next := m.next // add overwrites it
		sh.table.add(m)
		bytes += m.bytes()
		if at := m.deadline(sh.engine.recoverUntil, sh.engine.former); at != never {
			m.slot = int32(len(sh.due))
			sh.due = append(sh.due, due{at, m})
		}
		m = next
	}
	sh.engine.bytes.Add(bytes)
	sh.due.heapify()
	if len(sh.due) > 0 {
		sh.arm(sh.due[0].at, sh.engine.clock.Now())
	}
}
