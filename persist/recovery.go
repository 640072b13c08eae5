package persist

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/simba-resp/simba-resp"
)

// Recovered is the state that a store has from earlier runs.
type Recovered struct {
	Seq   simba.Seq // at least every Seq that a client has seen; the next change gets a larger one
	Token uint64    // at least every token that a client has seen
	// Delay is the recovery delay. If a crash lost leases, they still run for at most this long.
	// Until Delay has passed, the engine must grant nothing new.
	Delay time.Duration
	// Leases reads the leases, sorted by mutex, including those that have ended. It stops after the
	// first error. Read it before the first Append: later it yields newer leases.
	Leases  iter.Seq2[simba.Lease, error]
	History []simba.Event // from old to new
}

// recover brings the checkpoint up to the journal's end and reads it. Then it writes the run's
// first record, with the floors and the epoch.
func (s *Store) recover(o *Options) (*Recovered, error) {
	s.checkpointing.Lock()
	defer s.checkpointing.Unlock()
	if err := s.advanceTo(s.journal.Durable()); err != nil {
		return nil, err
	}
	m := s.checkpoint.meta
	if err := s.journal.Release(m.Index); err != nil {
		return nil, err
	}
	s.taken.Store(m.Index)
	now := s.now()
	if !m.isOf(o.Boot, s.bootNow()) {
		warnOfBoot(o, &m)
		m.epoch = epoch{o.Boot.ID, m.Generation + 1, now, o.Wall().UnixMilli()}
	}
	s.epoch = m.epoch
	s.inherited, s.recoverUntil = m.Delay, now.Add(m.Delay)
	s.appended = floors{seq: m.Seq, token: m.Token}
	s.committed.Store(uint64(m.Seq))
	r, err := s.recovered(m.Delay)
	if err != nil {
		return nil, err
	}
	if err := s.beginRun(); err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	return r, nil
}

// Replay returns the state after all appended changes, as Open would. So a new engine can replace
// one that was stopped, while the store stays open.
//
// When the new engine starts, its clock must show the instant that Options.Boot.Now returns.
// Options.Now must not have stood still while the machine slept. Otherwise the store adds the time
// of the sleep to each lease, although the new clock includes that time.
func (s *Store) Replay() (*Recovered, error) {
	if err := s.writeAll(false); err != nil {
		return nil, err
	}
	s.checkpointing.Lock()
	defer s.checkpointing.Unlock()
	if err := s.advanceTo(s.journal.Durable()); err != nil {
		s.failCheckpoint(err)
		return nil, err
	}
	return s.recovered(max(0, s.recoverUntil.Sub(s.now())))
}

// recovered returns the contents of the checkpoint. The caller holds checkpointing.
func (s *Store) recovered(delay time.Duration) (*Recovered, error) {
	events, err := s.checkpoint.readHistory()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Recovered{
		Seq:     s.appended.seq,
		Token:   s.appended.token,
		Delay:   delay,
		Leases:  s.leases,
		History: events,
	}, nil
}

// beginRun makes the first record of the run durable: its epoch.
func (s *Store) beginRun() error {
	s.next.record = appendChange(s.next.record, changeEpoch, appendEpoch(nil, &s.epoch))
	s.next.wanted = true
	start, g := time.Now(), s.take()
	if err := s.apply(g); err != nil {
		return err
	}
	if c := s.checkpoint; c.meta.Index == 0 {
		// From now on, Open refuses a store that has lost its journal.
		if err := c.add(s.journal.Durable(), g.record); err != nil {
			return err
		}
		if err := c.write(); err != nil {
			return pebbleError(err)
		}
	}
	s.markDurable(g, time.Since(start))
	return nil
}

// leases yields the stored leases, as they are on the current boot.
func (s *Store) leases(yield func(simba.Lease, error) bool) {
	it, err := s.db.NewIter(prefix(leasePrefix))
	if err != nil {
		yield(simba.Lease{}, pebbleError(err))
		return
	}
	more := true
	for ok := it.First(); ok && more; ok = it.Next() {
		l, generation, err := decodeLeaseRow(it.Key(), it.Value())
		more = yield(s.epoch.rebase(l, generation), sortError(err)) && err == nil
	}
	if err := it.Close(); err != nil && more {
		yield(simba.Lease{}, pebbleError(err))
	}
}

// readHistory returns the last events, and deletes rows of older ones. It reads from the newest
// back, so that it never meets the tombstones of old rows.
func (c *checkpoint) readHistory() ([]simba.Event, error) {
	h := history{limit: c.history.limit}
	it, err := c.db.NewIter(prefix(historyPrefix))
	if err != nil {
		return nil, pebbleError(err)
	}
	defer it.Close()
	var newestFirst [][]simba.Event
	ok := it.Last()
	for ; ok && h.events < h.limit; ok = it.Prev() {
		first, events, err := decodeRow(it.Key(), it.Value())
		if err != nil {
			return nil, sortError(err)
		}
		newestFirst = append(newestFirst, events)
		h.rows = append(h.rows, row{first: first, count: len(events)})
		h.events += len(events)
	}
	if err := it.Error(); err != nil {
		return nil, pebbleError(err)
	}
	slices.Reverse(newestFirst)
	slices.Reverse(h.rows)
	if ok {
		oldest := appendRowKey(nil, h.rows[0].first)
		if err := c.db.DeleteRange([]byte{historyPrefix}, oldest, pebble.NoSync); err != nil {
			return nil, pebbleError(err)
		}
	}
	c.history = h
	events := slices.Concat(newestFirst...)
	return events[max(0, len(events)-h.limit):], nil
}

func prefix(c byte) *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{c}, UpperBound: []byte{c + 1}}
}
