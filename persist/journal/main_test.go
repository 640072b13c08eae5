package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testOptions returns options of a journal with segments of 8 KiB, half of it for frames.
func testOptions(fsys vfs.FS) Options {
	return Options{
		FS: fsys, Dir: "journal", StoreID: [16]byte{15: 7},
		SegmentSize: 2 * block,
	}
}

func mustOpen(t testing.TB, o Options) *Journal {
	t.Helper()
	j, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func mustClose(t testing.TB, j *Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// abandon ends a journal as kill -9 does: the journal writes nothing more.
func abandon(j *Journal) {
	_ = j.fail(errors.New("killed"))
	_ = j.Close()
}

func mustAppend(t testing.TB, j *Journal, payload string) {
	t.Helper()
	want := j.appended + 1
	if index, err := j.Append([]byte(payload)); err != nil || index != want {
		t.Fatalf("Append returned %d, %v, want %d", index, err, want)
	}
}

func mustSync(t testing.TB, j *Journal) {
	t.Helper()
	if err := j.Sync(); err != nil {
		t.Fatal(err)
	}
}

// mustWrite appends a record for each payload, and syncs after each.
func mustWrite(t testing.TB, j *Journal, payloads ...string) {
	t.Helper()
	for _, p := range payloads {
		mustAppend(t, j, p)
		mustSync(t, j)
	}
}

// mustRotate begins a new segment, as if a record did not fit.
func mustRotate(t testing.TB, j *Journal) {
	t.Helper()
	if err := j.rotate(headSize); err != nil {
		t.Fatal(err)
	}
}

// payloads returns the payloads of all records after an index. The records must have no gap.
func payloads(t testing.TB, j *Journal, after uint64) []string {
	t.Helper()
	got := []string{}
	for r, err := range j.Records(after, j.FullIndex()) {
		if err != nil {
			t.Fatal(err)
		}
		if want := after + uint64(len(got)) + 1; r.Index != want {
			t.Fatalf("the next record is %d, want %d", r.Index, want)
		}
		got = append(got, string(r.Payload))
	}
	return got
}

// numbered returns payloads for the records from first to last.
func numbered(first, last int) []string {
	p := []string{}
	for i := first; i <= last; i++ {
		p = append(p, fmt.Sprint("record ", i))
	}
	return p
}

func wantPayloads(t testing.TB, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the records are %.200q, want %.200q", got, want)
	}
}

func contents(t testing.TB, fsys vfs.FS, dir string) map[string][]byte {
	t.Helper()
	names, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		files[name] = readFile(t, fsys, fsys.PathJoin(dir, name))
	}
	return files
}

func readFile(t testing.TB, fsys vfs.FS, path string) []byte {
	t.Helper()
	f, err := fsys.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t testing.TB, fsys vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fsys.Create(path, category)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(bytes.Clone(b)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// diskOf returns a file system with these files in the directory of a journal.
func diskOf(t testing.TB, files map[string][]byte) *vfs.MemFS {
	t.Helper()
	fsys := vfs.NewMem()
	if err := fsys.MkdirAll("journal", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, b := range files {
		writeFile(t, fsys, "journal/"+name, b)
	}
	return fsys
}

func segmentsOf(files map[string][]byte) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(files)), func(name string) bool {
		_, ok := parseSegment(name)
		return !ok
	})
}

// wantDamage checks that Open changes nothing and returns an error with the file and the offset.
func wantDamage(t testing.TB, o Options, file string, offset int64) {
	t.Helper()
	before := contents(t, o.FS, o.Dir)
	_, err := Open(o)
	var damage *DamageError
	if !errors.As(err, &damage) || damage.File != o.path(file) || damage.Offset != offset {
		t.Errorf("Open returned %v, want damage of %s at %d", err, file, offset)
	}
	wantUnchanged(t, o, before)
}

func wantUnchanged(t testing.TB, o Options, before map[string][]byte) {
	t.Helper()
	if after := contents(t, o.FS, o.Dir); !maps.EqualFunc(before, after, bytes.Equal) {
		t.Errorf("Open has changed the files, from %v to %v", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
	}
}
