package persist

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/simba-resp/simba-resp"
)

// RecordFormat is the newest format of records that this version reads. A Store writes it, unless a
// member of its cluster reads only older ones: see LeadOptions.Format.
const RecordFormat = 1

// headSize is the size of a record's head, in bytes.
const headSize = 84

// head is the beginning of a record. Numbers are little endian, offsets and lengths are in bytes:
//
//	 0  4  format
//	 4  8  term of the cluster's leader that made the record; 0 on a single server
//	12  8  first Seq of the changes
//	20  8  last Seq of the changes
//	28  8  instant of the record: the writer's boot clock when the record was made
//	36  8  the writer's wall clock at that instant, in Unix milliseconds
//	44  8  floor of Seq, see meta
//	52  8  floor of tokens
//	60  8  recovery delay, in nanoseconds
//	68  8  generation of the writer's boot
//	76  8  base: an instant of that boot, from which Acquired counts in each changePut
//	84  …  changes, each a kind (1 byte), the length of its body (uvarint) and its body
//
// Instant and base say how old each lease was when the record was made. So a member of a cluster can
// convert a record to its own clock: see localize. A record that changes nothing of the state has a
// floor of Seq of 0.
type head struct {
	format      uint32
	term        uint64
	first, last simba.Seq
	instant     simba.Instant
	wall        int64
	seq         simba.Seq
	token       uint64
	delay       time.Duration
	generation  uint64
	base        simba.Instant
}

type changeKind byte

const (
	changeMembers changeKind = 1 // a change of the cluster's members: see Entry
	changePut     changeKind = 2 // name of the mutex, then appendLease
	changeDelete  changeKind = 3 // name of the mutex
	changeEvent   changeKind = 4 // lastEvent.append
)

// put writes the head into the first headSize bytes of a record.
func (h *head) put(record []byte) {
	binary.LittleEndian.PutUint32(record, h.format)
	for i, v := range [...]uint64{
		h.term, uint64(h.first), uint64(h.last), uint64(h.instant), uint64(h.wall),
		uint64(h.seq), h.token, uint64(h.delay), h.generation, uint64(h.base),
	} {
		binary.LittleEndian.PutUint64(record[4+8*i:], v)
	}
}

func decodeHead(record []byte) (h head, changes []byte, err error) {
	if len(record) < headSize {
		return head{}, nil, errGarbage
	}
	format := binary.LittleEndian.Uint32(record)
	if format > RecordFormat {
		return head{}, nil, &versionError{"format", uint64(format), RecordFormat}
	} else if format == 0 {
		return head{}, nil, errGarbage
	}
	field := func(i int) uint64 { return binary.LittleEndian.Uint64(record[4+8*i:]) }
	if field(7) > math.MaxInt64 {
		return head{}, nil, errGarbage
	}
	return head{
		format:     format,
		term:       field(0),
		first:      simba.Seq(field(1)),
		last:       simba.Seq(field(2)),
		instant:    simba.Instant(field(3)),
		wall:       int64(field(4)),
		seq:        simba.Seq(field(5)),
		token:      field(6),
		delay:      time.Duration(field(7)),
		generation: field(8),
		base:       simba.Instant(field(9)),
	}, record[headSize:], nil
}

func appendPut(b []byte, base simba.Instant, l *simba.Lease) []byte {
	return appendLease(appendString(b, l.Mutex), base, l)
}

// localize makes the record of another member one of this member, whose clock shows now. That is
// later than when the record was made. So a lease never ends here before it ends for its owner.
func (h *head) localize(now simba.Instant, generation uint64) {
	h.base += now - h.instant
	h.instant, h.generation = now, generation
}

// decodePut reads the body of a changePut.
func decodePut(h *head, body []byte) (l simba.Lease, err error) {
	r := reader{rest: body}
	mutex := r.string()
	l = r.lease(h.base)
	l.Mutex = mutex
	if h.generation == 0 {
		r.fail()
	}
	return l, r.finish()
}

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

// lastChanges drops each change of a lease that a later change in the record supersedes. That is
// safe because a record is replayed whole or not at all. It reuses the record's memory.
func lastChanges(record []byte) []byte {
	last := make(map[string]int) // by mutex: len(r.rest) at its last change
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

func recordError(index uint64, err error) error {
	return sortError(fmt.Errorf("record %d: %w", index, err))
}
