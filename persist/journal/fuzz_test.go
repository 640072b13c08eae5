package journal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
)

// FuzzOpenDamaged damages one segment of a journal, and opens the journal. Open must refuse the
// journal and change nothing, or find a prefix of the records. If a durable record is missing, no
// intact frame may state that it was durable.
func FuzzOpenDamaged(f *testing.F) {
	journals := [2]fuzzed{fuzzedJournal(f, false), fuzzedJournal(f, true)}
	for s := range byte(4) {
		for _, at := range []uint16{0, 40, headerSize, headerSize + 8, headerSize + 100, 2*block - 8} {
			f.Add(s, at, []byte{0}, byte(0), uint16(0), uint16(0))
			f.Add(s, at, []byte("garbage that is longer"), byte(0), uint16(0), uint16(0))
			// bytes of another segment
			f.Add(s, at, []byte(nil), s+1, uint16(headerSize), uint16(100))
			f.Add(s|128, at, []byte{1}, byte(3), uint16(headerSize+64), uint16(64))
			f.Add(s|64, at, []byte(nil), byte(0), uint16(0), uint16(0)) // a cut segment
		}
	}
	// The test overwrites one segment from the offset at, first with junk, then with bytes of the
	// segment other. The parameter which has three parts. Its low bits select the segment. Bit 7
	// selects the journal with the seal. Bit 6 cuts the segment at the offset.
	f.Fuzz(func(t *testing.T, which byte, at uint16, junk []byte, other byte, from, size uint16) {
		j := journals[which>>7]
		files := map[string][]byte{}
		for name, b := range j.files {
			files[name] = bytes.Clone(b)
		}
		names := segmentsOf(files)
		name, source := names[which%4], j.files[names[other%4]]
		b := files[name]
		offset := min(int(at), len(b))
		copy(b[offset:], junk)
		if size > 0 {
			copy(b[offset:], source[min(int(from), len(source)):min(int(from)+int(size), len(source))])
		}
		if which&64 != 0 {
			files[name] = b[:offset]
		}
		j.open(t, name, files)
	})
}

type fuzzed struct {
	files  map[string][]byte
	places []position
}

func fuzzedJournal(t testing.TB, sealed bool) fuzzed {
	o, places := damageable(t, sealed)
	files := contents(t, o.FS, o.Dir)
	maps.DeleteFunc(files, func(name string, _ []byte) bool { return strings.HasPrefix(name, "spare") })
	return fuzzed{files, places}
}

// open opens the journal with the given files. Only the segment named damaged differs from the
// intact one.
func (j fuzzed) open(t *testing.T, damaged string, files map[string][]byte) {
	o := testOptions(diskOf(t, files))
	opened, err := Open(o)
	if err != nil {
		var damage *DamageError
		if !errors.As(err, &damage) || damage.Offset > int64(2*block) {
			t.Errorf("Open returned %v, want a DamageError within the first blocks", err)
		}
		wantUnchanged(t, o, files)
		return
	}
	defer mustClose(t, opened)
	last := opened.FullIndex()
	for r, err := range opened.Records(0, opened.FullIndex()) {
		want := fmt.Sprint("record ", r.Index)
		if r.Index == 4 {
			want = ""
		}
		if err != nil || string(r.Payload) != want {
			t.Fatalf("Records yields record %d as %q, %v", r.Index, r.Payload, err)
		}
	}
	end := j.places[len(j.places)-1].file
	if damaged != end {
		if last != 10 {
			t.Errorf("Open found %d records, want 10, since the damaged %s is not the last segment", last, damaged)
		}
		return
	}
	for _, p := range j.places {
		head := p.offset + headSize
		intact := p.file == end && int64(len(files[end])) >= head &&
			bytes.Equal(files[end][:headerSize], j.files[end][:headerSize]) &&
			bytes.Equal(files[end][p.offset:head], j.files[end][p.offset:head])
		if intact && p.durable > last {
			t.Errorf("Open found %d records, but the frame of record %d states that %d were durable", last, p.index, p.durable)
		}
	}
}
