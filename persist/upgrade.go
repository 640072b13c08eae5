package persist

import (
	"crypto/rand"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/simba-resp/simba-resp"
)

// upgrade prepares a store that has no journal: a new one, or one that an earlier version wrote.
// The rows become the checkpoint before the journal's first record. The new meta row is durable
// before the journal exists, so from then on an earlier version refuses the store.
func upgrade(db *pebble.DB, m *meta) error {
	b := db.NewBatch()
	defer b.Close()
	if m.format != 0 && m.format < 3 {
		if err := renameKeys(db, b); err != nil {
			return err
		}
	}
	m.Index = 0
	_, _ = rand.Read(m.Store[:]) // it never fails
	if err := b.Set([]byte(metaKey), appendMeta(nil, m), nil); err != nil {
		return err
	}
	return pebbleError(errors.Join(db.Apply(b, pebble.NoSync), db.Flush()))
}

// renameKeys gives leases of a store before format 3 their present names: see metaFormat. It
// deletes leases of keys such as simba:{m}:fence, which now only show a part of mutex m. If a mutex
// has leases under both names, the lease under the shorter name stays.
func renameKeys(db *pebble.DB, batch *pebble.Batch) error {
	old := prefix(leasePrefix)
	old.LowerBound = appendLeaseKey(nil, "simba:{")
	old.UpperBound = appendLeaseKey(nil, "simba:|")
	it, err := db.NewIter(old)
	if err != nil {
		return pebbleError(err)
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		name := string(it.Key()[1:])
		k := simba.ParseKey(name)
		if k == (simba.Key{Mutex: name}) {
			continue
		}
		err = batch.Delete(it.Key(), nil)
		if to := appendLeaseKey(nil, k.Mutex); err == nil && k.Part == simba.KeyLock && !has(db, to) {
			err = batch.Set(to, it.Value(), nil)
		}
	}
	return pebbleError(errors.Join(err, it.Close()))
}

// has reports whether the row exists. If the read fails, the next read of all rows fails too.
func has(db *pebble.DB, key []byte) bool {
	_, closer, err := db.Get(key)
	if err == nil {
		_ = closer.Close() // Close only ends a read
	}
	return err == nil
}
