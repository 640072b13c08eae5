package persist

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/simba-resp/simba-resp"
)

// segmentVersion is the version of history segments that is written.
const segmentVersion = 1

// segment collects the events of one group as one record. The zero value is empty.
type segment struct {
	first simba.Seq // of its first event; it makes the key
	count int

	value []byte
	seq   simba.Seq // of the last event: each is stored as
	at    int64     // the difference to the one before it
}

func (s *segment) append(e *simba.Event) {
	if s.count == 0 {
		s.first, s.seq, s.at = e.Seq, e.Seq, 0
		s.value = append(s.value[:0], segmentVersion)
	}
	b := binary.AppendVarint(s.value, int64(e.Seq-s.seq))
	b = binary.AppendVarint(b, e.At-s.at)
	b = append(b, byte(e.Kind))
	b = appendString(b, e.Mutex)
	b = appendString(b, e.Owner)
	b = binary.AppendUvarint(b, e.Token)
	s.value = appendString(b, e.Reason)
	s.seq, s.at = e.Seq, e.At
	s.count++
}

func appendSegmentKey(b []byte, first simba.Seq) []byte {
	b = append(b, historyPrefix)
	return binary.BigEndian.AppendUint64(b, uint64(first))
}

// decodeSegment reads a segment record. Errors name its first event.
func decodeSegment(key, value []byte) (first simba.Seq, events []simba.Event, err error) {
	if len(key) != 9 {
		return 0, nil, fmt.Errorf("history segment: %w", errGarbage)
	}
	first = simba.Seq(binary.BigEndian.Uint64(key[1:]))
	r := reader{rest: value}
	if v := r.byte(); v > segmentVersion {
		return 0, nil, fmt.Errorf("history from event %d: %w", first, &versionError{uint64(v), segmentVersion})
	} else if v == 0 {
		r.fail()
	}
	seq, at := first, int64(0)
	for len(r.rest) > 0 {
		e := simba.Event{Seq: seq + simba.Seq(r.varint()), At: at + r.varint(), Kind: simba.EventKind(r.byte())}
		e.Mutex = r.string()
		e.Owner = r.string()
		e.Token = r.uvarint()
		e.Reason = r.string()
		if e.Kind == 0 || e.Kind > simba.EventLeft {
			r.fail()
		}
		seq, at = e.Seq, e.At
		events = append(events, e)
	}
	if err := r.finish(); err != nil {
		return 0, nil, fmt.Errorf("history from event %d: %w", first, err)
	}
	return first, events, nil
}

// history knows which segments are stored, so that the old ones can be deleted
// without a look at the disk.
type history struct {
	limit    int // how many events to keep
	stored   int // events in segments
	segments []extent
}

// extent is a stored segment.
type extent struct {
	first simba.Seq
	count int
}

// write adds the segment to the batch and deletes those from the store that are
// wholly older than the events to keep.
func (h *history) write(b *pebble.Batch, s *segment) error {
	if s.count == 0 {
		return nil
	}
	var key [9]byte
	if err := b.Set(appendSegmentKey(key[:0], s.first), s.value, nil); err != nil {
		return err
	}
	h.segments = append(h.segments, extent{s.first, s.count})
	h.stored += s.count
	for h.stored-h.segments[0].count >= h.limit {
		if err := b.Delete(appendSegmentKey(key[:0], h.segments[0].first), nil); err != nil {
			return err
		}
		h.stored -= h.segments[0].count
		h.segments = h.segments[1:]
	}
	return nil
}
