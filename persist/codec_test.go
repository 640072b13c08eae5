package persist

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
)

var testLease = simba.Lease{
	Mutex: "job", Owner: "pod-1", Token: math.MaxUint64,
	Acquired: -3, AcquiredAt: 1_700_000_000_123,
	TTL: simba.MaxTTL, Transition: simba.MaxTransition,
	StartedAt: 1_600_000_000_000, Session: true,
}

var testMeta = meta{
	epoch: epoch{Boot: "boot", Generation: 3, Rebased: math.MinInt64, RebasedAt: 5},
	Seq:   math.MaxUint64, Token: 7, Delay: math.MaxInt64,
	Latest: -4,
	Index:  math.MaxUint64, Store: [16]byte{1, 15: 2},
}

var testHead = head{
	format: RecordFormat,
	first:  1, last: math.MaxUint64, instant: -4, wall: -5,
	seq: math.MaxUint64, token: math.MaxUint64, delay: math.MaxInt64,
	generation: 3, base: math.MinInt64,
}

var testEvents = []simba.Event{
	{Seq: 10, At: 1_700_000_000_000, Kind: simba.EventAcquired, Mutex: "job", Owner: "pod-1", Token: 4},
	{Seq: 11, At: 1_699_999_999_999, Kind: simba.EventBroken, Mutex: "job", Owner: "pod-1", Token: 4, Reason: "by hand"},
	{Seq: 9, At: -1, Kind: simba.EventLeft, Mutex: "ö", Owner: "x"},
}

func encodeRow(events []simba.Event) (key, value []byte) {
	l := lastEvent{seq: events[0].Seq}
	value = []byte{rowVersion}
	for i := range events {
		value = l.append(value, &events[i])
	}
	return appendRowKey(nil, events[0].Seq), value
}

// encodeRecord returns a record with a change of every kind.
func encodeRecord() []byte {
	record := make([]byte, headSize)
	testHead.put(record)
	record = appendChange(record, changeMembers, []byte("members"))
	record = appendChange(record, changePut, appendPut(nil, testHead.base, &testLease))
	record = appendChange(record, changeDelete, []byte("job"))
	return appendChange(record, changeEvent, new(lastEvent).append(nil, &testEvents[0]))
}

func decodeRecord(record []byte) (head, error) {
	c := newCheckpoint(nil, meta{}, 10)
	if err := c.add(1, record); err != nil {
		return head{}, err
	}
	h, _, err := decodeHead(record)
	return h, err
}

func TestRecordsAreReadAsWritten(t *testing.T) {
	for _, want := range []simba.Lease{
		testLease,
		{Mutex: "any\x00 key", Token: 1, TTL: simba.Endless, Acquired: math.MinInt64},
		{Mutex: "h", Owner: "f", Token: 1, TTL: time.Second, Fields: []simba.Field{{Name: "f", Value: "1"}, {Name: "", Value: "\xff"}}},
	} {
		l, generation, err := decodeLeaseRow(appendLeaseKey(nil, want.Mutex), appendLeaseRow(nil, 9, &want))
		if !reflect.DeepEqual(l, want) || generation != 9 || err != nil {
			t.Errorf("decodeLeaseRow = %+v, generation %d, %v, want %+v, 9, nil", l, generation, err, want)
		}
		l, err = decodePut(&testHead, appendPut(nil, testHead.base, &want))
		if !reflect.DeepEqual(l, want) || err != nil {
			t.Errorf("decodePut = %+v, %v, want %+v, nil", l, err, want)
		}
	}
	m, err := decodeMeta(appendMeta(nil, &testMeta))
	if m != testMeta || err != nil {
		t.Errorf("decodeMeta = %+v, %v, want %+v", m, err, testMeta)
	}
	first, events, err := decodeRow(encodeRow(testEvents))
	if first != 10 || !slices.Equal(events, testEvents) || err != nil {
		t.Errorf("decodeRow = %d, %+v, %v, want 10, %+v", first, events, err, testEvents)
	}
	h, err := decodeRecord(encodeRecord())
	if h != testHead || err != nil {
		t.Errorf("decodeRecord = %+v, %v, want %+v", h, err, testHead)
	}
}

// Later versions must read the data on disk. So the bytes of each format must never change.
func TestTheBytesOfRecordsAreTheseForEver(t *testing.T) {
	lease := simba.Lease{
		Mutex: "m", Owner: "o", Token: 5, Acquired: 100, AcquiredAt: 200, TTL: 300, Transition: 1,
		StartedAt: 198, Session: true, Fields: []simba.Field{{Name: "o", Value: "1"}},
	}
	if got, want := appendLeaseRow(nil, 2, &lease), []byte("\x01\x02\x05\xc8\x01\x90\x03\x04\xac\x02\x01\x01o\x01\x01\x01o\x011"); !bytes.Equal(got, want) {
		t.Errorf("the lease is encoded as %q, want %q", got, want)
	}
	if got, want := appendPut(nil, 101, &lease), []byte("\x01m\x05\x01\x90\x03\x04\xac\x02\x01\x01o\x01\x01\x01o\x011"); !bytes.Equal(got, want) {
		t.Errorf("the put is encoded as %q, want %q", got, want)
	}
	if got, want := appendMeta(nil, &meta{epoch{"b", 1, 2, 3}, 4, 5, 6, 7, 8, 9, 10, [16]byte{11}}),
		[]byte("\x01\x01b\x01\x04\x06\x04\x05\x06\x0e\x08\x09\x0a\x0b"+strings.Repeat("\x00", 15)); !bytes.Equal(got, want) {
		t.Errorf("the meta row is encoded as %q, want %q", got, want)
	}
	key, value := encodeRow([]simba.Event{
		{Seq: 258, At: 5, Kind: 1, Mutex: "m", Owner: "o", Token: 3, Reason: "r"},
		{Seq: 259, At: 4, Kind: 2, Mutex: "m", Owner: "o", Token: 3},
	})
	if want := []byte("h\x00\x00\x00\x00\x00\x00\x01\x02"); !bytes.Equal(key, want) {
		t.Errorf("the key of the row is %q, want %q", key, want)
	}
	if want := []byte("\x01\x00\x0a\x01\x01m\x01o\x03\x01r\x02\x01\x02\x01m\x01o\x03\x00"); !bytes.Equal(value, want) {
		t.Errorf("the row is encoded as %q, want %q", value, want)
	}
	record := make([]byte, headSize)
	(&head{format: RecordFormat, term: 10, first: 1, last: 2, instant: 3, wall: 4, seq: 5, token: 6, delay: 7, generation: 8, base: 9}).put(record)
	record = appendChange(record, changeMembers, []byte("members"))
	record = appendChange(record, changePut, []byte("lease"))
	record = appendChange(record, changeDelete, []byte("m"))
	record = appendChange(record, changeEvent, []byte("event"))
	var want []byte
	for _, v := range []byte{10, 1, 2, 3, 4, 5, 6, 7, 8, 9} {
		want = append(want, v, 0, 0, 0, 0, 0, 0, 0)
	}
	want = slices.Concat([]byte{1, 0, 0, 0}, want, []byte("\x01\x07members\x02\x05lease\x03\x01m\x04\x05event"))
	if !bytes.Equal(record, want) {
		t.Errorf("the record is encoded as %q, want %q", record, want)
	}
}

// decoders decode values that a disk may have damaged.
var decoders = map[string]func(value []byte) error{
	"lease":   func(v []byte) error { _, _, err := decodeLeaseRow([]byte("lm"), v); return err },
	"meta":    func(v []byte) error { _, err := decodeMeta(v); return err },
	"history": func(v []byte) error { _, _, err := decodeRow(appendRowKey(nil, 1), v); return err },
	"record":  func(v []byte) error { _, err := decodeRecord(v); return err },
}

func goodRecords() map[string][]byte {
	_, row := encodeRow(testEvents)
	return map[string][]byte{
		"lease":   appendLeaseRow(nil, 1, &testLease),
		"meta":    appendMeta(nil, &testMeta),
		"history": row,
		"record":  encodeRecord(),
	}
}

func TestRecordsOfNewerVersionsAreRefusedByName(t *testing.T) {
	newest := map[string]byte{"lease": leaseVersion, "meta": metaFormat, "history": rowVersion, "record": RecordFormat}
	for kind, record := range goodRecords() {
		record[0] = newest[kind] + 1
		err := decoders[kind](record)
		var version *versionError
		if !errors.As(err, &version) || version.version != uint64(record[0]) || version.newest != uint64(newest[kind]) {
			t.Errorf("decoding a newer %s returns %v, want a *versionError", kind, err)
		}
		if err := sortError(err); !errors.Is(err, ErrNewer) || errors.Is(err, ErrCorrupt) {
			t.Errorf("sortError for a newer %s returns %v, want ErrNewer", kind, err)
		}
	}
	if _, _, err := decodeLeaseRow([]byte("ljob"), []byte{9}); !strings.Contains(err.Error(), `"job"`) {
		t.Errorf("the error %q does not name the mutex", err)
	}
}

func TestAnUnknownKindOfChangeIsRefusedByName(t *testing.T) {
	record := appendChange(encodeRecord(), changeEvent+1, []byte("?"))
	err := recordError(17, decoders["record"](record))
	want := "written by a newer version of simba-resp (record 17: kind of change 5; this one reads up to 4)"
	if !errors.Is(err, ErrNewer) || err.Error() != want {
		t.Errorf("recordError = %v, want %s", err, want)
	}
}

func TestSpoiltRecordsAreRefused(t *testing.T) {
	for kind, record := range goodRecords() {
		spoilt := map[string][]byte{
			"version 0": append([]byte{0}, record[1:]...),
			"cut short": record[:len(record)-1],
			"too long":  append(slices.Clone(record), 0x80),
			"empty":     nil,
		}
		for how, record := range spoilt {
			if err := sortError(decoders[kind](record)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s, %s: the decoder returns %v, want ErrCorrupt", kind, how, err)
			}
		}
	}
	leases := map[string]func(*simba.Lease){
		"no token":            func(l *simba.Lease) { l.Token = 0 },
		"no ttl":              func(l *simba.Lease) { l.TTL = 0 },
		"ttl beyond measure":  func(l *simba.Lease) { l.TTL = simba.MaxLockTTL + 1 },
		"negative transition": func(l *simba.Lease) { l.Transition = -time.Second },
	}
	for how, spoil := range leases {
		l := testLease
		spoil(&l)
		if err := decoders["lease"](appendLeaseRow(nil, 1, &l)); !errors.Is(err, errGarbage) {
			t.Errorf("lease with %s: the decoder returns %v, want errGarbage", how, err)
		}
	}
	if err := decoders["history"](binary.AppendUvarint([]byte{rowVersion, 0, 0, 99}, 0)); !errors.Is(err, errGarbage) {
		t.Errorf("unknown kind of event: the decoder returns %v, want errGarbage", err)
	}
	if _, _, err := decodeRow([]byte("h123"), nil); !errors.Is(err, errGarbage) {
		t.Errorf("decodeRow with a short key returns %v, want errGarbage", err)
	}
}

// FuzzDecode checks that no input makes a decoder panic. The encoding of a decoded value must
// decode to the same value.
func FuzzDecode(f *testing.F) {
	for _, record := range goodRecords() {
		f.Add(record)
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		if l, generation, err := decodeLeaseRow([]byte("lm"), record); err == nil {
			again, generation2, err := decodeLeaseRow([]byte("lm"), appendLeaseRow(nil, generation, &l))
			if !reflect.DeepEqual(again, l) || generation2 != generation || err != nil {
				t.Errorf("lease %+v is decoded again as %+v, %v", l, again, err)
			}
			if l.End() < l.Acquired && l.Acquired < math.MaxInt64/2 {
				t.Errorf("the decoder accepts lease %+v, which ends before it begins", l)
			}
		}
		if m, err := decodeMeta(record); err == nil {
			if again, err := decodeMeta(appendMeta(nil, &m)); again != m || err != nil {
				t.Errorf("meta %+v is decoded again as %+v, %v", m, again, err)
			}
		}
		if _, events, err := decodeRow(appendRowKey(nil, 1), record); err == nil && len(events) > 0 {
			if _, again, err := decodeRow(encodeRow(events)); !reflect.DeepEqual(again, events) || err != nil {
				t.Errorf("events %+v are decoded again as %+v, %v", events, again, err)
			}
		}
		if h, err := decodeRecord(record); err == nil {
			again := make([]byte, headSize)
			h.put(again)
			if !bytes.Equal(again, record[:headSize]) {
				t.Errorf("the head %q is encoded again as %q", record[:headSize], again)
			}
		}
	})
}
