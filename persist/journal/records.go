package journal

import (
	"iter"
	"slices"
)

// A Record is a record that Append has written.
type Record struct {
	Index   uint64
	Payload []byte // valid until the next record is read
}

// FullIndex returns the index of the last record in a full segment. Directly after Open, that is
// the last record of all. It is safe for concurrent use.
func (j *Journal) FullIndex() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.current.first - 1
}

// Behind returns the total size of the full segments that have a record with an index above after,
// and none above last. It is safe for concurrent use.
func (j *Journal) Behind(after, last uint64) (size int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.full {
		if s.last > after && s.last <= last {
			size += s.size
		}
	}
	return size
}

// Records yields the records with an index above after, in order, up to last. They must be durable.
// An error ends the loop. It is a DamageError if a record is not as Append wrote it, or was
// released.
//
// Records is safe for concurrent use beside Append and Sync. It reads the files without a lock.
func (j *Journal) Records(after, last uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		j.mu.Lock()
		segments := slices.Clone(j.full)
		current := j.current
		j.mu.Unlock()
		current.last = last
		segments = append(segments, current)
		if first := segments[0]; after+1 < first.first {
			yield(Record{}, damaged(first.path, 0, "record %d was released, the segment begins with record %d", after+1, first.first))
			return
		}
		for _, s := range segments {
			s.last = min(s.last, last)
			if s.last > after && s.last >= s.first && !j.readSegment(s, after, yield) {
				return
			}
		}
	}
}

// readSegment yields the records of one segment with an index above after, up to s.last. It returns
// false if the loop has ended.
func (j *Journal) readSegment(s segment, after uint64, yield func(Record, error) bool) bool {
	r, err := newReader(j.o.FS, s)
	if err != nil {
		yield(Record{}, err)
		return false
	}
	defer r.close()
	for r.index <= s.last {
		index := r.index
		ok, err := r.next()
		if err == nil && !ok {
			err = damaged(r.path, r.offset, "record %d should be here", index)
		}
		if err != nil {
			yield(Record{}, err)
			return false
		}
		if index > after && !yield(Record{Index: index, Payload: r.payload}, nil) {
			return false
		}
	}
	return true
}
