package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

type position struct {
	file    string
	offset  int64
	size    int64
	index   uint64
	durable uint64 // durable index that the frame states
}

// damageable makes a journal of four segments with ten records. Rotation alone syncs record 5, the
// last of the second segment. A crash ended the third segment: behind record 6 it has two torn
// records. The fourth ends with a seal if sealed is set. damageable returns the positions of all
// frames but the torn ones.
func damageable(t testing.TB, sealed bool) (Options, []position) {
	o := testOptions(vfs.NewMem())
	var places []position
	j := mustOpen(t, o)
	add := func(payload string) {
		at := j.offset
		mustAppend(t, j, payload)
		places = append(places, position{o.FS.PathBase(j.current.path), at, j.offset - at, j.appended, j.Durable()})
		places[len(places)-1].durable = durableAt(t, o, places[len(places)-1])
	}
	add("record 1")
	mustSync(t, j)
	add("record 2")
	mustSync(t, j)
	mustRotate(t, j)
	add("record 3")
	add("")
	mustSync(t, j)
	add("record 5")
	mustRotate(t, j)
	add("record 6")
	add("torn off")
	torn := places[len(places)-1]
	places = places[:len(places)-1]
	add("behind what is torn off")
	places = places[:len(places)-1]
	abandon(j)
	memory(t, o, torn.file)[torn.offset]++
	j = mustOpen(t, o)
	add("record 7")
	mustSync(t, j)
	add("record 8")
	add("record 9")
	mustSync(t, j)
	add("record 10")
	if !sealed {
		abandon(j)
		return o, places
	}
	mustClose(t, j)
	return o, append(places, position{o.FS.PathBase(j.current.path), j.offset - headSize, headSize, 11, 10})
}

func durableAt(t testing.TB, o Options, p position) uint64 {
	b := memory(t, o, p.file)
	s, err := decodeHeader(b[:headerSize])
	if err != nil {
		t.Fatal(err)
	}
	f, ok := decodeFrame(b[p.offset:], s.salt)
	if !ok || f.index != p.index {
		t.Fatalf("the frame of record %d is %+v, %v", p.index, f, ok)
	}
	return f.durable
}

// memory returns the bytes of a segment's file. A change of these bytes changes the file.
func memory(t testing.TB, o Options, file string) []byte {
	b, err := o.FS.(*vfs.MemFS).UnsafeGetFileDataBuffer(o.path(file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// findsOf returns the result of a scan as one line of text.
func findsOf(s *scan, err error) string {
	var damage *DamageError
	switch {
	case errors.As(err, &damage):
		return fmt.Sprintf("damage of %s at %d", damage.File, damage.Offset)
	case err != nil:
		return err.Error()
	}
	return fmt.Sprintf("%d records", s.segments[len(s.segments)-1].last)
}

// The test flips one bit after another in all frames. Open must refuse a journal with a damaged
// frame, or take the frame for a torn end. The header of a later segment shows that a frame is
// missing. A later frame shows it too, if it states that the missing record was durable.
func TestEveryFlippedBitIsRefusedOrTheTornEnd(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		o, places := damageable(t, sealed)
		want := func(p position) string {
			last := p.file == places[len(places)-1].file
			for _, later := range places {
				if last && later.index > p.index && later.durable >= p.index || !last && later.index == 10 {
					return fmt.Sprintf("damage of %s at %d", o.path(p.file), p.offset)
				}
			}
			return fmt.Sprintf("%d records", p.index-1)
		}
		torn := 0
		for _, p := range places {
			b, expected := memory(t, o, p.file), want(p)
			if !strings.Contains(expected, "damage") {
				torn++
			}
			for bit := p.offset * 8; bit < (p.offset+p.size)*8; bit++ {
				b[bit/8] ^= 1 << (bit % 8)
				if got := findsOf(scanDir(&o)); got != expected {
					t.Errorf("sealed %v, record %d: with bit %d flipped the scan finds %s, want %s", sealed, p.index, bit-p.offset*8, got, expected)
				}
				b[bit/8] ^= 1 << (bit % 8)
			}
		}
		if torn != 1 {
			t.Errorf("sealed %v: the scan takes %d damaged frames for a torn end, want only the last", sealed, torn)
		}
	}
}

func TestAFlippedBitInAHeaderIsRefused(t *testing.T) {
	o, _ := damageable(t, false)
	for n := range uint64(4) {
		b := memory(t, o, segmentName(n+1))
		for i := range headerSize {
			if i > 100 && i < headerSize-8 && i%50 > 0 {
				continue // TestEveryBitOfAHeaderIsChecked flips all bits
			}
			b[i] ^= 4
			want := fmt.Sprintf("damage of %s at 0", o.path(segmentName(n+1)))
			if got := findsOf(scanDir(&o)); got != want {
				t.Errorf("with byte %d of the header of segment %d changed the scan finds %s, want %s", i, n+1, got, want)
			}
			b[i] ^= 4
		}
	}
}

// Behind the last frame of a segment are zeros, frames of an earlier use, or a torn record.
func TestABitBehindTheEndIsIgnored(t *testing.T) {
	o, places := damageable(t, false)
	for i, p := range places {
		if i+1 < len(places) && places[i+1].file == p.file {
			continue
		}
		b := memory(t, o, p.file)
		for at := p.offset + p.size; at < int64(len(b)); at += 29 {
			b[at] ^= 0x10
			if got := findsOf(scanDir(&o)); got != "10 records" {
				t.Errorf("with byte %d of %s changed the scan finds %s, want 10 records", at, p.file, got)
			}
			b[at] ^= 0x10
		}
	}
}

// There is one case for each reason to refuse a journal.
func TestARefusedJournalIsLeftAsItIs(t *testing.T) {
	for name, test := range map[string]struct {
		damage func(o *Options, files map[string][]byte)
		file   string
		offset int64
	}{
		"a frame is damaged": {func(o *Options, files map[string][]byte) {
			files[segmentName(4)][headerSize+headSize]++
		}, segmentName(4), headerSize},
		"a segment in the middle is missing": {func(o *Options, files map[string][]byte) {
			delete(files, segmentName(2))
		}, segmentName(2), 0},
		"the first segment is missing": {func(o *Options, files map[string][]byte) {
			delete(files, segmentName(1))
		}, segmentName(1), 0},
		"the segment after the checkpoint is missing": {func(o *Options, files map[string][]byte) {
			delete(files, segmentName(2))
			o.From = 4
		}, segmentName(2), 0},
		"all segments are missing": {func(o *Options, files map[string][]byte) {
			clear(files)
			o.From = 4
		}, segmentName(1), 0},
		"the last segment is missing": {func(o *Options, files map[string][]byte) {
			delete(files, segmentName(4))
			o.From = 7
		}, segmentName(3), headerSize + frameSize(8)},
		"the segments belong to another store": {func(o *Options, files map[string][]byte) {
			o.StoreID[0]++
		}, segmentName(4), 0},
		"a segment has the wrong name": {func(o *Options, files map[string][]byte) {
			files[segmentName(5)] = files[segmentName(4)]
		}, segmentName(5), 0},
		"a segment is empty": {func(o *Options, files map[string][]byte) {
			files[segmentName(3)] = nil
		}, segmentName(3), 0},
		"a header is cut": {func(o *Options, files map[string][]byte) {
			files[segmentName(4)] = files[segmentName(4)][:headerSize-1]
		}, segmentName(4), 0},
		"a header is zeros": {func(o *Options, files map[string][]byte) {
			clear(files[segmentName(4)][:headerSize])
		}, segmentName(4), 0},
		"a segment is cut behind its header": {func(o *Options, files map[string][]byte) {
			files[segmentName(2)] = files[segmentName(2)][:headerSize]
		}, segmentName(2), headerSize},
		"a segment is cut in a frame": {func(o *Options, files map[string][]byte) {
			files[segmentName(2)] = files[segmentName(2)][:headerSize+headSize+4]
		}, segmentName(2), headerSize},
		"a segment has the frames of another": {func(o *Options, files map[string][]byte) {
			copy(files[segmentName(2)][headerSize:], files[segmentName(1)][headerSize:])
		}, segmentName(2), headerSize},
		"a later frame replaces an earlier one": {func(o *Options, files map[string][]byte) {
			b := files[segmentName(4)]
			copy(b[headerSize:], b[headerSize+frameSize(8):headerSize+2*frameSize(8)])
		}, segmentName(4), headerSize},
	} {
		t.Run(name, func(t *testing.T) {
			o, _ := damageable(t, false)
			files := contents(t, o.FS, o.Dir)
			test.damage(&o, files)
			o.FS = diskOf(t, files)
			wantDamage(t, o, test.file, test.offset)
		})
	}
}

func TestANewerFormatIsRefusedByName(t *testing.T) {
	o, _ := damageable(t, false)
	files := contents(t, o.FS, o.Dir)
	b := files[segmentName(4)]
	b[8]++
	binary.LittleEndian.PutUint64(b[sumAt:], checksum(0, b[:sumAt]))
	o.FS = diskOf(t, files)
	_, err := Open(o)
	if !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), segmentName(4)) || !strings.Contains(err.Error(), "format 2") {
		t.Errorf("Open returned %v, want ErrNewer that names the segment and the format", err)
	}
	wantUnchanged(t, o, files)
}

func TestAnUnknownKindOfFrameIsRefusedByName(t *testing.T) {
	o := testOptions(vfs.NewMem())
	j := mustOpen(t, o)
	mustWrite(t, j, "known")
	offset := j.offset
	if err := j.write(9, 2, []byte("unknown")); err != nil {
		t.Fatal(err)
	}
	abandon(j)
	wantDamage(t, o, segmentName(1), offset)
	if _, err := Open(o); !strings.Contains(err.Error(), "unknown kind 9") {
		t.Errorf("Open returned %v, want an error that names the unknown kind 9", err)
	}
}

// Open does not read a segment that the checkpoint covers.
func TestADamagedSegmentThatTheCheckpointCoversIsNotNeeded(t *testing.T) {
	o, _ := damageable(t, false)
	memory(t, o, segmentName(1))[0]++
	memory(t, o, segmentName(2))[headerSize]++
	o.From = 5
	j := mustOpen(t, o)
	defer mustClose(t, j)
	wantPayloads(t, payloads(t, j, 5), numbered(6, 10))
	if got := segmentsOf(contents(t, o.FS, o.Dir)); got[0] != segmentName(3) {
		t.Errorf("the segments are %v, want segment 3 first", got)
	}
}

func TestSegmentsThatAreDamagedSinceOpenAreNoticed(t *testing.T) {
	o, places := damageable(t, true)
	j := mustOpen(t, o)
	defer mustClose(t, j)
	memory(t, o, places[3].file)[places[3].offset+headSize-1]++
	n := 0
	for r, err := range j.Records(0, j.FullIndex()) {
		if n++; n < 4 {
			if err != nil || r.Index != uint64(n) {
				t.Fatalf("Records yields record %d, %v, want record %d", r.Index, err, n)
			}
			continue
		}
		var damage *DamageError
		if !errors.As(err, &damage) || damage.File != o.path(places[3].file) || damage.Offset != places[3].offset {
			t.Errorf("after record 3, Records yields record %d, %v, want the damage of record 4", r.Index, err)
		}
	}
	if n != 4 {
		t.Errorf("the loop over the records had %d steps, want 4: three records and an error", n)
	}
}
