package persist

import (
	"iter"
	"slices"
	"sync"
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

// recover brings the checkpoint up to the journal's end and reads it. Then it makes the committer,
// which writes the run's first record, with the floors.
func (f *files) recover() (*Store, *Recovered, error) {
	o, k := f.options, f.checkpoints
	if err := k.advanceLocked(f.journal.Durable()); err != nil {
		return nil, nil, err
	}
	if err := f.beginEpoch(); err != nil {
		return nil, nil, err
	}
	m := k.checkpoint.meta
	if err := f.journal.Release(m.Index); err != nil {
		return nil, nil, err
	}
	s, r, err := f.newStore(o, &m, f.fault, f.writeRecord)
	if err != nil {
		return nil, nil, err
	}
	s.closing = sync.OnceValue(s.close)
	if err = s.begin(); err == nil && m.Index == 0 {
		// From now on, Open refuses a store that has lost its journal.
		err = k.advanceLocked(f.journal.Durable())
	}
	return s, r, err
}

// newStore returns a Store whose records write makes durable, and the contents of the checkpoint, which
// has all changes. m is its meta row.
func (f *files) newStore(o *Options, m *meta, fault *fault, write func(record []byte) error) (*Store, *Recovered, error) {
	events, err := f.checkpoints.checkpoint.readHistory()
	if err != nil {
		return nil, nil, err
	}
	run := run{f.epoch.Generation, m.Delay, o.Now().Add(m.Delay)}
	s := &Store{files: f, committer: newCommitter(o, run, floors{seq: m.Seq, token: m.Token}, fault, write)}
	return s, &Recovered{Seq: m.Seq, Token: m.Token, Delay: m.Delay, Leases: f.leases, History: events}, nil
}

// leases yields the stored leases, as they are on the current boot.
func (f *files) leases(yield func(simba.Lease, error) bool) {
	it, err := f.db.NewIter(prefix(leasePrefix))
	if err != nil {
		yield(simba.Lease{}, pebbleError(err))
		return
	}
	more := true
	for ok := it.First(); ok && more; ok = it.Next() {
		l, generation, err := decodeLeaseRow(it.Key(), it.Value())
		more = yield(f.epoch.rebase(l, generation), sortError(err)) && err == nil
	}
	if err := it.Close(); err != nil && more {
		yield(simba.Lease{}, pebbleError(err))
	}
}

// readHistory returns the last events. It reads from the newest back, so that it never meets the
// tombstones of old rows. The next write deletes the rows of older events.
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
	h.trim = ok
	c.history = h
	events := slices.Concat(newestFirst...)
	return events[max(0, len(events)-h.limit):], nil
}

func prefix(c byte) *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{c}, UpperBound: []byte{c + 1}}
}
