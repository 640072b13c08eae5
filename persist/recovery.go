package persist

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/simba-resp/simba-resp"
)

// Recovered is what a store remembers from earlier runs.
type Recovered struct {
	Seq   simba.Seq // no larger one was told: the next change gets a larger one
	Token uint64    // the same for tokens
	// Quiet is how long from now leases may run that were told and then lost: until
	// it has passed nobody new may be granted anything.
	Quiet time.Duration
	// Leases reads the leases as of Open, in the order of the mutexes' names, ended
	// ones included. It ends at the first error. It can be used until Close.
	Leases  iter.Seq2[simba.Lease, error]
	History []simba.Event // from old to new
}

// leases yields the stored leases, on the scale of the current boot.
func (s *Store) leases(yield func(simba.Lease, error) bool) {
	it, err := s.db.NewIter(prefix(leasePrefix))
	if err != nil {
		yield(simba.Lease{}, pebbleError(err))
		return
	}
	more := true
	for ok := it.First(); ok && more; ok = it.Next() {
		l, generation, err := decodeLease(it.Key(), it.Value())
		more = yield(s.template.place(l, generation), recordError(err)) && err == nil
	}
	if err := it.Close(); err != nil && more {
		yield(simba.Lease{}, pebbleError(err))
	}
}

// renameKeys gives leases of a store before format 3 the names that their keys have now. It deletes
// those of keys that are views of a mutex by now. If a mutex has a lease under either name, that under
// the shorter one stays.
func (s *Store) renameKeys() error {
	old := prefix(leasePrefix)
	old.LowerBound = appendLeaseKey(nil, "simba:{")
	old.UpperBound = appendLeaseKey(nil, "simba:|")
	it, err := s.db.NewIter(old)
	if err != nil {
		return pebbleError(err)
	}
	batch := s.next.batch
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		name := string(it.Key()[1:])
		k := simba.ParseKey(name)
		if k == (simba.Key{Mutex: name}) {
			continue
		}
		err = batch.Delete(it.Key(), nil)
		if to := appendLeaseKey(nil, k.Mutex); err == nil && k.Part == simba.KeyLock && !s.has(to) {
			err = batch.Set(to, it.Value(), nil)
		}
	}
	if err := errors.Join(err, it.Close()); err != nil {
		return pebbleError(err)
	}
	return nil
}

// has reports whether there is a record. Whoever reads all of them meets the error of a read that fails.
func (s *Store) has(key []byte) bool {
	_, closer, err := s.db.Get(key)
	if err == nil {
		_ = closer.Close() // nothing was written
	}
	return err == nil
}

// recoverHistory returns the last limit events, and has older ones deleted. It
// reads from the newest back, so that it never meets the deletions that lie
// before the oldest.
func (s *Store) recoverHistory(limit int) ([]simba.Event, error) {
	s.history.limit = limit
	it, err := s.db.NewIter(prefix(historyPrefix))
	if err != nil {
		return nil, pebbleError(err)
	}
	defer it.Close()
	var newestFirst [][]simba.Event
	ok := it.Last()
	for ; ok && s.history.stored < limit; ok = it.Prev() {
		first, events, err := decodeSegment(it.Key(), it.Value())
		if err != nil {
			return nil, recordError(err)
		}
		newestFirst = append(newestFirst, events)
		s.history.segments = append(s.history.segments, extent{first, len(events)})
		s.history.stored += len(events)
	}
	if err := it.Error(); err != nil {
		return nil, pebbleError(err)
	}
	slices.Reverse(newestFirst)
	slices.Reverse(s.history.segments)
	if ok {
		oldest := appendSegmentKey(nil, s.history.segments[0].first)
		if err := s.next.batch.DeleteRange([]byte{historyPrefix}, oldest, nil); err != nil {
			return nil, err
		}
	}
	events := slices.Concat(newestFirst...)
	return events[max(0, len(events)-limit):], nil
}

// prefix bounds an iterator to the records of one kind.
func prefix(c byte) *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{c}, UpperBound: []byte{c + 1}}
}

// recordError sorts the error of a decoder into ours.
func recordError(err error) error {
	var version *versionError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &version):
		return fmt.Errorf("%w (%w)", ErrNewer, err)
	default:
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
}
