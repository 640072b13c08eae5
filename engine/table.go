package engine

import (
	"math/bits"
)

// shardBits is the number of topmost bits of a hash that select the shard.
const shardBits = 6

// table finds the mutexes of one shard by name. It is a chained hash table whose buckets are in the
// order of the hashes. The bits of a hash after those of the shard select the bucket. So a hash
// stays valid as the cursor of a scan when the table grows or shrinks. (Go's map cannot be iterated
// in parts.)
type table struct {
	buckets []*mutex
	bits    int // len(buckets) = 1<<bits
	len     int // number of mutexes
}

const minTableBits = 2

func newTable() table {
	return table{buckets: make([]*mutex, 1<<minTableBits), bits: minTableBits}
}

func (t *table) bucket(hash uint64) uint64 {
	return hash << shardBits >> (64 - t.bits)
}

func (t *table) get(hash uint64, name string) *mutex {
	for m := t.buckets[t.bucket(hash)]; m != nil; m = m.next {
		if m.hash == hash && m.name() == name {
			return m
		}
	}
	return nil
}

func (t *table) add(m *mutex) {
	if t.len >= len(t.buckets) {
		t.resize(t.bits + 1)
	}
	b := &t.buckets[t.bucket(m.hash)]
	m.next, *b = *b, m
	t.len++
}

func (t *table) remove(m *mutex) {
	for p := &t.buckets[t.bucket(m.hash)]; ; p = &(*p).next {
		if *p == m {
			*p, m.next = m.next, nil
			break
		}
	}
	t.len--
	if t.bits > minTableBits && t.len < len(t.buckets)/8 {
		t.resize(t.bits - 2)
	}
}

func (t *table) resize(b int) {
	old := t.buckets
	t.bits = max(b, minTableBits)
	t.buckets = make([]*mutex, 1<<t.bits)
	for _, m := range old {
		for m != nil {
			next := m.next
			b := &t.buckets[t.bucket(m.hash)]
			m.next, *b = *b, m
			m = next
		}
	}
}

// cursorShift makes a cursor, a hash without its last bits, small enough for clients that keep
// numbers as IEEE doubles. It bounds a table to 2^(53-shardBits) buckets.
const cursorShift = 11

// scan calls do for the mutexes in whole buckets. It begins with the bucket of the hash from. It
// stops after about count mutexes, and returns the hash to continue with; 0 = the shard is done.
func (t *table) scan(from uint64, count int, do func(*mutex)) (next uint64, seen int) {
	// A scan of a sparse table must not hold the lock for long. As in Redis, ten buckets count as
	// much as one mutex.
	for i, buckets := t.bucket(from), 0; i < uint64(len(t.buckets)); i++ {
		if seen >= count || buckets >= 10*count {
			return from>>(64-shardBits)<<(64-shardBits) | i<<(64-shardBits-t.bits), seen
		}
		buckets++
		for m := t.buckets[i]; m != nil; m = m.next {
			do(m)
			seen++
		}
	}
	return 0, seen
}

// shardStart returns the smallest hash of shard i.
func shardStart(i int) uint64 { return uint64(i) << (64 - shardBits) }

func shardOf(hash uint64) int { return int(bits.RotateLeft64(hash, shardBits) & (1<<shardBits - 1)) }
