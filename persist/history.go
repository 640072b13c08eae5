package persist

import (
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/simba-resp/simba-resp"
)

// rowVersion is the version of the format in which rows of the history are written.
const rowVersion = 1

// lastEvent is the previous event of a record. Each event is stored as the difference from it. The
// first event has none: then seq is the first Seq of the record's changes, and at is 0.
type lastEvent struct {
	seq simba.Seq
	at  int64
}

func (l *lastEvent) append(b []byte, e *simba.Event) []byte {
	b = binary.AppendVarint(b, int64(e.Seq-l.seq))
	b = binary.AppendVarint(b, e.At-l.at)
	b = append(b, byte(e.Kind))
	b = appendString(b, e.Mutex)
	b = appendString(b, e.Owner)
	b = binary.AppendUvarint(b, e.Token)
	l.seq, l.at = e.Seq, e.At
	return appendString(b, e.Reason)
}

func appendRowKey(b []byte, first simba.Seq) []byte {
	b = append(b, historyPrefix)
	return binary.BigEndian.AppendUint64(b, uint64(first))
}

// decodeRow reads a row of the history: the events of one record. Errors name the record's first
// Seq.
func decodeRow(key, value []byte) (first simba.Seq, events []simba.Event, err error) {
	if len(key) != 9 {
		return 0, nil, fmt.Errorf("row of the history: %w", errGarbage)
	}
	first = simba.Seq(binary.BigEndian.Uint64(key[1:]))
	r := reader{rest: value}
	err = r.version(rowVersion)
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
	if err = cmp.Or(err, r.finish()); err != nil {
		return 0, nil, fmt.Errorf("history from event %d: %w", first, err)
	}
	return first, events, nil
}

// history lists the rows of the history, so that old rows can be deleted without a read. It keeps
// the rows that have the newest events, as many as the field limit says. The oldest of these rows
// may have older events too.
type history struct {
	limit  int
	events int   // number of events in rows
	rows   []row // from old to new
	added  int   // how many of the last rows are not in Pebble
	trim   bool  // Pebble has rows that are older than rows
}

// row has the events of one record.
type row struct {
	first simba.Seq
	count int
	value []byte // nil if the row is in Pebble
}

// add adds the newest row, and drops rows that have none of the newest h.limit events.
// It ignores a row that it has added before.
func (h *history) add(r row) {
	if n := len(h.rows); n > 0 && r.first <= h.rows[n-1].first {
		return
	}
	h.rows = append(h.rows, r)
	h.added++
	h.events += r.count
	for h.events-h.rows[0].count >= h.limit {
		h.events -= h.rows[0].count
		h.rows = h.rows[1:]
		h.trim = true
	}
	h.added = min(h.added, len(h.rows))
}

// write adds the rows that are new since the last call to the batch, and deletes older rows than
// those of h.
func (h *history) write(b *pebble.Batch) error {
	var key [9]byte
	if h.trim {
		if err := b.DeleteRange([]byte{historyPrefix}, appendRowKey(key[:0], h.rows[0].first), nil); err != nil {
			return err
		}
	}
	for i := len(h.rows) - h.added; i < len(h.rows); i++ {
		r := &h.rows[i]
		if err := b.Set(appendRowKey(key[:0], r.first), r.value, nil); err != nil {
			return err
		}
		r.value = nil
	}
	h.added, h.trim = 0, false
	return nil
}
