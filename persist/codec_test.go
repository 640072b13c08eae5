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
}

var testMeta = meta{
	Boot: "boot", Generation: 3, Rebased: math.MinInt64, RebasedAt: 5,
	Seq: math.MaxUint64, Token: 7, Quiet: math.MaxInt64,
	Latest: -4,
	format: metaFormat,
}

var testEvents = []simba.Event{
	{Seq: 10, At: 1_700_000_000_000, Kind: simba.EventAcquired, Mutex: "job", Owner: "pod-1", Token: 4},
	{Seq: 11, At: 1_699_999_999_999, Kind: simba.EventBroken, Mutex: "job", Owner: "pod-1", Token: 4, Reason: "by hand"},
	{Seq: 9, At: -1, Kind: simba.EventLeft, Mutex: "ö", Owner: "x"},
}

func encodeSegment(events []simba.Event) (key, value []byte) {
	var s segment
	for i := range events {
		s.append(&events[i])
	}
	return appendSegmentKey(nil, s.first), s.value
}

func TestRecordsAreReadAsWritten(t *testing.T) {
	for _, want := range []simba.Lease{
		testLease,
		{Mutex: "any\x00 key", Token: 1, TTL: simba.Endless},
		{Mutex: "h", Owner: "f", Token: 1, TTL: time.Second, Fields: []simba.Field{{Name: "f", Value: "1"}, {Name: "", Value: "\xff"}}},
	} {
		l, generation, err := decodeLease(appendLeaseKey(nil, want.Mutex), appendLease(nil, 9, &want))
		if !reflect.DeepEqual(l, want) || generation != 9 || err != nil {
			t.Errorf("lease %+v of generation %d, %v", l, generation, err)
		}
	}
	m, err := decodeMeta(appendMeta(nil, &testMeta))
	if m != testMeta || err != nil {
		t.Errorf("meta %+v, %v", m, err)
	}
	first, events, err := decodeSegment(encodeSegment(testEvents))
	if first != 10 || !slices.Equal(events, testEvents) || err != nil {
		t.Errorf("segment from %d: %+v, %v", first, events, err)
	}
}

// What is on disk must be readable by the next version, so the bytes are fixed.
func TestTheBytesOfRecordsAreTheseForEver(t *testing.T) {
	lease := simba.Lease{Mutex: "m", Owner: "o", Token: 5, Acquired: 100, AcquiredAt: 200, TTL: 300, Transition: 1}
	if got, want := appendLease(nil, 2, &lease), []byte("\x01\x02\x05\xc8\x01\x90\x03\xac\x02\x01\x01o"); !bytes.Equal(got, want) {
		t.Errorf("lease %q, want %q", got, want)
	}
	lock := simba.Lease{Mutex: "m", Owner: "o", Token: 5, Acquired: 100, AcquiredAt: 200, TTL: 300, Fields: []simba.Field{{Name: "o", Value: "1"}}}
	if got, want := appendLease(nil, 2, &lock), []byte("\x02\x02\x05\xc8\x01\x90\x03\xac\x02\x00\x01o\x01\x01o\x011"); !bytes.Equal(got, want) {
		t.Errorf("lock %q, want %q", got, want)
	}
	if got, want := appendMeta(nil, &meta{"b", 1, 7, 2, 3, 4, 5, 6, 0}), []byte("\x03\x01b\x01\x04\x06\x04\x05\x06\x0e"); !bytes.Equal(got, want) {
		t.Errorf("meta %q, want %q", got, want)
	}
	key, value := encodeSegment([]simba.Event{
		{Seq: 258, At: 5, Kind: 1, Mutex: "m", Owner: "o", Token: 3, Reason: "r"},
		{Seq: 259, At: 4, Kind: 2, Mutex: "m", Owner: "o", Token: 3},
	})
	if want := []byte("h\x00\x00\x00\x00\x00\x00\x01\x02"); !bytes.Equal(key, want) {
		t.Errorf("segment key %q, want %q", key, want)
	}
	if want := []byte("\x01\x00\x0a\x01\x01m\x01o\x03\x01r\x02\x01\x02\x01m\x01o\x03\x00"); !bytes.Equal(value, want) {
		t.Errorf("segment %q, want %q", value, want)
	}
}

// decoders are all that reads what a disk may have spoilt.
var decoders = map[string]func(value []byte) error{
	"lease":   func(v []byte) error { _, _, err := decodeLease([]byte("lm"), v); return err },
	"meta":    func(v []byte) error { _, err := decodeMeta(v); return err },
	"history": func(v []byte) error { _, _, err := decodeSegment(appendSegmentKey(nil, 1), v); return err },
}

func goodRecords() map[string][]byte {
	_, segment := encodeSegment(testEvents)
	return map[string][]byte{
		"lease":   appendLease(nil, 1, &testLease),
		"meta":    appendMeta(nil, &testMeta),
		"history": segment,
	}
}

func TestRecordsOfNewerVersionsAreRefusedByName(t *testing.T) {
	newest := map[string]byte{"lease": lockVersion, "meta": metaFormat, "history": segmentVersion}
	for kind, record := range goodRecords() {
		record[0] = newest[kind] + 1
		err := decoders[kind](record)
		var version *versionError
		if !errors.As(err, &version) || version.version != uint64(record[0]) || version.newest != uint64(newest[kind]) {
			t.Errorf("%s: %v, want a *versionError", kind, err)
		}
		if err := recordError(err); !errors.Is(err, ErrNewer) || errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, want ErrNewer", kind, err)
		}
	}
	if _, _, err := decodeLease([]byte("ljob"), []byte{9}); !strings.Contains(err.Error(), `"job"`) {
		t.Errorf("%v does not name the mutex", err)
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
			if err := recordError(decoders[kind](record)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s, %s: %v, want ErrCorrupt", kind, how, err)
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
		if err := decoders["lease"](appendLease(nil, 1, &l)); !errors.Is(err, errGarbage) {
			t.Errorf("%s: %v, want errGarbage", how, err)
		}
	}
	if err := decoders["lease"]([]byte{leaseVersion, 1, 1, 0, 0, 1, 0, 0}); !errors.Is(err, errGarbage) {
		t.Errorf("no owner: %v, want errGarbage", err)
	}
	if err := decoders["history"](binary.AppendUvarint([]byte{segmentVersion, 0, 0, 99}, 0)); !errors.Is(err, errGarbage) {
		t.Errorf("an unknown kind of event: %v, want errGarbage", err)
	}
	if _, _, err := decodeSegment([]byte("h123"), nil); !errors.Is(err, errGarbage) {
		t.Errorf("a short key: %v, want errGarbage", err)
	}
}

// FuzzDecode checks that no record makes a decoder panic, and that what one
// accepts means the same when it is written and read again.
func FuzzDecode(f *testing.F) {
	for _, record := range goodRecords() {
		f.Add(record)
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		if l, generation, err := decodeLease([]byte("lm"), record); err == nil {
			again, generation2, err := decodeLease([]byte("lm"), appendLease(nil, generation, &l))
			if !reflect.DeepEqual(again, l) || generation2 != generation || err != nil {
				t.Errorf("lease %+v became %+v, %v", l, again, err)
			}
			if l.End() < l.Acquired && l.Acquired < math.MaxInt64/2 {
				t.Errorf("lease %+v ends before it begins", l)
			}
		}
		if m, err := decodeMeta(record); err == nil {
			if again, err := decodeMeta(appendMeta(nil, &m)); again != m || err != nil {
				t.Errorf("meta %+v became %+v, %v", m, again, err)
			}
		}
		if _, events, err := decodeSegment(appendSegmentKey(nil, 1), record); err == nil && len(events) > 0 {
			if _, again, err := decodeSegment(encodeSegment(events)); !reflect.DeepEqual(again, events) || err != nil {
				t.Errorf("events %+v became %+v, %v", events, again, err)
			}
		}
	})
}
