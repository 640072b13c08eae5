package persist

import "github.com/cockroachdb/pebble/v2"

// checkpoint is the state after all records up to an index, as rows in Pebble. First recovery uses
// it, then the checkpointer.
//
// Pebble keeps its batches in order, and each has the meta row with its index. So after any crash
// the rows are the state at exactly that index.
type checkpoint struct {
	db      *pebble.DB
	meta    meta // after the last record that was added
	history history

	// Added since the last write:
	leases map[string][]byte // by mutex: the value of its row; nil deletes the row
	size   int64             // of the records, in bytes
}

func newCheckpoint(db *pebble.DB, m meta, historyLen int) *checkpoint {
	return &checkpoint{
		db:      db,
		meta:    m,
		history: history{limit: historyLen},
		leases:  make(map[string][]byte),
	}
}

// add adds the next record. If the checkpoint has the record already, add changes nothing. add
// keeps no part of the payload.
func (c *checkpoint) add(index uint64, payload []byte) error {
	if index <= c.meta.Index {
		return nil
	}
	h, changes, err := decodeHead(payload)
	if err != nil {
		return err
	}
	events := row{first: h.first}
	err = eachChange(changes, func(kind changeKind, body []byte) error {
		switch kind {
		case changePut:
			l, err := decodePut(&h, body)
			if err != nil {
				return err
			}
			c.leases[l.Mutex] = appendLeaseRow(make([]byte, 0, len(body)+8), h.generation, &l)
		case changeDelete:
			c.leases[string(body)] = nil
		case changeEvent:
			if events.count++; events.count == 1 {
				events.value = []byte{rowVersion}
			}
			events.value = append(events.value, body...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if events.count > 0 {
		c.history.add(events)
	}
	if h.seq != 0 {
		c.meta.Seq, c.meta.Token, c.meta.Delay = h.seq, h.token, h.delay
	}
	if h.generation == c.meta.Generation { // else the record is of an earlier boot
		c.meta.Latest = h.instant
	}
	c.meta.Index, c.meta.Term = index, h.term
	c.size += int64(len(payload))
	return nil
}

// write writes the added changes to Pebble, and makes them durable.
func (c *checkpoint) write() error {
	b := c.db.NewBatch()
	defer b.Close()
	var key []byte
	for mutex, value := range c.leases {
		key = appendLeaseKey(key[:0], mutex)
		var err error
		if value == nil {
			err = b.Delete(key, nil)
		} else {
			err = b.Set(key, value, nil)
		}
		if err != nil {
			return err
		}
	}
	if err := c.history.write(b); err != nil {
		return err
	}
	c.leases = make(map[string][]byte) // frees the memory of a large map
	c.size = 0
	return apply(c.db, b, &c.meta)
}

// apply applies a batch with a meta row, and makes all rows durable.
func apply(db *pebble.DB, b *pebble.Batch, m *meta) error {
	if err := b.Set([]byte(metaKey), appendMeta(nil, m), nil); err != nil {
		return err
	}
	if err := db.Apply(b, pebble.NoSync); err != nil {
		return err
	}
	return db.Flush()
}
