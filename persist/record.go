package persist

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/simba-resp/simba-resp"
)

// recordFormat is the version of records that is written.
const recordFormat = 1

// headSize is the size of a record without its changes, in bytes.
const headSize = 68

// head is what a record begins with. Numbers are little endian, offsets and lengths
// are in bytes:
//
//	 0  4  format
//	 4  8  term: 0, for a journal that more than one server writes
//	12  8  first Seq of the changes
//	20  8  last Seq of the changes
//	28  8  Latest of the writer, see meta
//	36  8  the writer's wall clock, in Unix milliseconds
//	44  8  floor of Seq, see meta
//	52  8  floor of tokens
//	60  8  quiet time, in nanoseconds
//	68  …  changes, each a kind (1 byte), the length of its body (uvarint) and its body
type head struct {
	first, last simba.Seq
	latest      simba.Instant
	wall        int64
	seq         simba.Seq
	token       uint64
	quiet       time.Duration
}

// A changeKind says what a change of a record does.
type changeKind byte

const (
	changeEpoch  changeKind = 1 // a run begins: an epoch
	changePut    changeKind = 2 // name of the mutex, then the value of its lease's row
	changeDelete changeKind = 3 // name of the mutex
	changeEvent  changeKind = 4 // an event, as in a row of the history
)

// put writes the head into the first headSize bytes of a record.
func (h *head) put(record []byte) {
	binary.LittleEndian.PutUint32(record, recordFormat)
	for i, v := range [...]uint64{
		0, uint64(h.first), uint64(h.last), uint64(h.latest), uint64(h.wall),
		uint64(h.seq), h.token, uint64(h.quiet),
	} {
		binary.LittleEndian.PutUint64(record[4+8*i:], v)
	}
}

// decodeHead returns a record's head and its changes.
func decodeHead(record []byte) (h head, changes []byte, err error) {
	if len(record) < headSize {
		return head{}, nil, errGarbage
	}
	if v := uint64(binary.LittleEndian.Uint32(record)); v > recordFormat {
		return head{}, nil, &versionError{"format", v, recordFormat}
	} else if v == 0 {
		return head{}, nil, errGarbage
	}
	field := func(i int) uint64 { return binary.LittleEndian.Uint64(record[4+8*i:]) }
	if field(7) > math.MaxInt64 || field(0) != 0 {
		return head{}, nil, errGarbage
	}
	return head{
		first:  simba.Seq(field(1)),
		last:   simba.Seq(field(2)),
		latest: simba.Instant(field(3)),
		wall:   int64(field(4)),
		seq:    simba.Seq(field(5)),
		token:  field(6),
		quiet:  time.Duration(field(7)),
	}, record[headSize:], nil
}

// appendChange appends a change to a record.
func appendChange(record []byte, kind changeKind, body []byte) []byte {
	record = append(record, byte(kind))
	record = binary.AppendUvarint(record, uint64(len(body)))
	return append(record, body...)
}

// eachChange calls do for the changes of a record, in order, up to the first error.
func eachChange(changes []byte, do func(kind changeKind, body []byte) error) error {
	r := reader{rest: changes}
	for len(r.rest) > 0 {
		kind, body := changeKind(r.byte()), r.bytes()
		if r.broken || kind == 0 {
			return errGarbage
		}
		if kind > changeEvent {
			return &versionError{"kind of change", uint64(kind), uint64(changeEvent)}
		}
		if err := do(kind, body); err != nil {
			return err
		}
	}
	return nil
}

// lastChanges drops the changes of a lease that a later one in the record supersedes. A
// record is replayed whole or not at all. It works within the record's memory.
func lastChanges(record []byte) []byte {
	last := make(map[string]int) // by mutex: how much of the record is left at its last change
	short := record[:headSize]
	for _, drop := range [...]bool{false, true} {
		r := reader{rest: record[headSize:]}
		for len(r.rest) > 0 {
			start := r.rest
			kind, body := changeKind(r.byte()), r.bytes()
			mutex := body
			if kind == changePut {
				name := reader{rest: body}
				mutex = name.bytes()
			}
			ofLease := kind == changePut || kind == changeDelete
			switch {
			case !drop && ofLease:
				last[string(mutex)] = len(start)
			case drop && (!ofLease || last[string(mutex)] == len(start)):
				short = append(short, start[:len(start)-len(r.rest)]...)
			}
		}
	}
	return short
}

// recordError says which record cannot be replayed.
func recordError(index uint64, err error) error {
	return sortError(fmt.Errorf("record %d: %w", index, err))
}
