package persist

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/simba-resp/simba-resp/persist/journal"
)

// maxBehind limits the bytes of the full segments that are not in the checkpoint, in units of a
// segment's size. While there are more bytes, the writer waits. So the journal has at most two full
// segments, one that is being written, and a spare.
const maxBehind = 1

// computePatience bounds the time between two operations of a checkpoint, in units of
// Options.CommitTimeout. In that time a checkpoint reads and sorts at most 256 MiB of records.
const computePatience = 6

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

// advance adds about step bytes of the next records, up to the index last, and makes them durable.
// It first releases the segments that earlier calls have added. Until the release, a program
// that has copied Pebble's files still finds these segments in the journal.
func (c *checkpoint) advance(j *journal.Journal, last uint64, step int64) error {
	if err := j.Release(c.meta.Index); err != nil {
		return err
	}
	for r, err := range j.Records(c.meta.Index, last) {
		if err != nil {
			return journalError(err)
		}
		if err := c.add(r.Index, r.Payload); err != nil {
			return recordError(r.Index, err)
		}
		if c.size >= step {
			break
		}
	}
	return pebbleError(c.write())
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
		r := reader{rest: body}
		switch kind {
		case changeEpoch:
			c.meta.epoch = r.epoch()
			return r.finish()
		case changePut:
			l, generation, err := decodePut(&h, body, h.instant)
			if err != nil {
				return err
			}
			c.setLease(l.Mutex, appendLeaseRow(make([]byte, 0, len(body)+8), generation, &l))
		case changeDelete:
			c.setLease(string(body), nil)
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
	c.meta.Seq, c.meta.Token, c.meta.Delay, c.meta.Latest = h.seq, h.token, h.delay, h.instant
	c.meta.Index = index
	c.size += int64(len(payload))
	return nil
}

// setLease makes the next write set a mutex's row, or delete it if value is nil.
func (c *checkpoint) setLease(mutex string, value []byte) {
	c.leases[mutex] = value
}

// write writes the added changes to Pebble, and flushes them.
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
	if err := b.Set([]byte(metaKey), appendMeta(nil, &c.meta), nil); err != nil {
		return err
	}
	c.leases = make(map[string][]byte) // frees the memory of a large map
	c.size = 0
	if err := c.db.Apply(b, pebble.NoSync); err != nil {
		return err
	}
	return c.db.Flush()
}

// advanceTo brings the checkpoint up to an index. The caller holds checkpointing.
func (s *Store) advanceTo(last uint64) error {
	for s.checkpoint.meta.Index < last {
		if err := s.checkpoint.advance(s.journal, last, s.step); err != nil {
			return err
		}
		s.taken.Store(s.checkpoint.meta.Index)
		notify(s.advanced)
	}
	return nil
}

// keepCheckpoint advances the checkpoint whenever a segment is full, until Close or the first
// failure.
func (s *Store) keepCheckpoint() {
	for s.awaitFull() {
		s.checkpointing.Lock()
		err := s.advanceTo(s.journal.FullIndex())
		s.checkpointing.Unlock()
		if err != nil {
			s.failCheckpoint(err)
			return
		}
	}
}

func (s *Store) failCheckpoint(err error) {
	s.fault.trip(fmt.Errorf("checkpoint: %w", oneLine{err}))
}

// awaitFull waits until a full segment has a record that the checkpoint lacks. It returns false if
// the store ends first.
func (s *Store) awaitFull() bool {
	for {
		select {
		case <-s.ending:
			return false
		case <-s.fault.stopped:
			return false
		default:
		}
		if s.taken.Load() < s.journal.FullIndex() {
			return true
		}
		select {
		case <-s.full:
		case <-s.ending:
		case <-s.fault.stopped:
		}
	}
}

// behind returns the bytes of the full segments that are not in the checkpoint.
func (s *Store) behind() int64 { return s.journal.Behind(s.taken.Load()) }

// awaitCheckpoint waits while behind exceeds maxBehind.
func (s *Store) awaitCheckpoint() error {
	for s.behind() > maxBehind*s.step {
		if err := s.awaitCheckpointer(s.advanced); err != nil {
			return err
		}
	}
	return nil
}

// awaitCheckpointer waits until done receives a value or is closed. It fails if one operation of
// Pebble's takes s.timeout, because then the disk hangs. It also fails if Pebble begins no
// operation for computePatience times s.timeout. A checkpoint that is slow but goes on may take any
// time.
func (s *Store) awaitCheckpointer(done <-chan struct{}) error {
	since := time.Now()
	ticker := time.NewTicker(s.timeout / 10)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-s.fault.stopped:
			return s.fault.cause()
		case <-ticker.C:
		}
		running, last := s.progress.state()
		if last.After(since) {
			since = last
		}
		patience := s.timeout
		if !running {
			patience *= computePatience
		}
		if time.Since(since) >= patience {
			return fmt.Errorf("%w: %v", errCheckpointTimeout, patience)
		}
	}
}

// notify puts a value into a channel of capacity 1, unless the channel is full.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
