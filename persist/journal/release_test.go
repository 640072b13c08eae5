package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

func filesOf(t testing.TB, o Options) (segments, spares int) {
	t.Helper()
	files := contents(t, o.FS, o.Dir)
	segments = len(segmentsOf(files))
	return segments, len(files) - segments
}

func TestReleaseKeepsSegmentsWithLaterRecords(t *testing.T) {
	o := testOptions(vfs.NewMem())
	j := mustOpen(t, o)
	for i := range 4 {
		mustWrite(t, j, numbered(3*i+1, 3*i+3)...)
		if i < 3 {
			mustRotate(t, j)
		}
	}
	for index, first := range map[uint64]int{0: 1, 2: 1} {
		if err := j.Release(index); err != nil {
			t.Fatal(err)
		}
		wantPayloads(t, payloads(t, j, uint64(first-1)), numbered(first, 9))
	}
	if err := j.Release(7); err != nil {
		t.Fatal(err)
	}
	wantPayloads(t, payloads(t, j, 6), numbered(7, 9))
	if err := j.Release(100); err != nil { // the journal keeps the current segment
		t.Fatal(err)
	}
	if got := segmentsOf(contents(t, o.FS, o.Dir)); !slices.Equal(got, []string{segmentName(4)}) {
		t.Errorf("the segments are %v, want only the last", got)
	}
	mustWrite(t, j, "record 13")
	mustClose(t, j)
	o.From = 9
	j = mustOpen(t, o)
	defer mustClose(t, j)
	wantPayloads(t, payloads(t, j, 9), numbered(10, 13))
}

func TestAReleasedRecordIsAnErrorToRead(t *testing.T) {
	j := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, j)
	mustWrite(t, j, numbered(1, 3)...)
	mustRotate(t, j)
	if err := j.Release(3); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range j.Records(2, j.FullIndex()) {
		var damage *DamageError
		if n++; !errors.As(err, &damage) || !strings.Contains(err.Error(), "record 3 was released") {
			t.Errorf("Records yields the error %v, want a DamageError that says that record 3 was released", err)
		}
	}
	if left := len(payloads(t, j, 3)); n != 1 || left != 0 {
		t.Errorf("the loop over released records had %d steps, and %d records are left, want 1 and 0", n, left)
	}
}

// While the checkpoint keeps up, the journal reuses released files. It fills no new ones, and does
// not grow.
func TestReleasedFilesAreUsedAgain(t *testing.T) {
	filled := 0
	hook := func(o op) (int, error) {
		if o.kind == "write" && strings.Contains(o.path, "spare") && o.size > headerSize {
			filled++
		}
		return o.size, nil
	}
	o := testOptions(newTrapFS(vfs.NewMem(), hook))
	j := mustOpen(t, o)
	payload := strings.Repeat("x", 1000)
	for i := range uint64(100) {
		mustWrite(t, j, payload)
		j.filler.Wait()
		if segments, spares := filesOf(t, o); segments+spares > 4 || spares > keepFiles-1 {
			t.Fatalf("the journal has %d segments and %d spares, want at most 4 files and %d spares", segments, spares, keepFiles-1)
		}
		if i%4 == 3 {
			if err := j.Release(j.FullIndex()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if filled > 4 {
		t.Errorf("%d files were filled, want 4 at most", filled)
	}
	mustClose(t, j)
}

func TestOnlySomeReleasedFilesAreKept(t *testing.T) {
	o := testOptions(vfs.NewMem())
	j := mustOpen(t, o)
	defer mustClose(t, j)
	for i := range 10 {
		mustWrite(t, j, fmt.Sprint("record ", i+1))
		mustRotate(t, j)
	}
	j.filler.Wait()
	if err := j.Release(10); err != nil {
		t.Fatal(err)
	}
	if segments, spares := filesOf(t, o); segments != 1 || spares != keepFiles-1 {
		t.Errorf("the journal has %d segments and %d spares, want 1 and %d", segments, spares, keepFiles-1)
	}
}

// A file must not grow, since a sync would then have to write its new length, too. Only the segment
// of a very large record may grow.
func TestAFileNeverGrowsBeyondWhatWasFilled(t *testing.T) {
	for _, n := range []int{4000, 4001, 4016, 4017, 4056, 4057, 8152, 8153, 20_000, 20_001} {
		o := testOptions(vfs.NewMem())
		j := mustOpen(t, o)
		mustAppend(t, j, "small")
		j.filler.Wait() // makes a spare ready
		mustRotate(t, j)
		mustRotate(t, j) // uses the spare
		for range 1 + n%2 {
			mustAppend(t, j, strings.Repeat("x", n))
			j.filler.Wait()
		}
		all := append(slices.Clone(j.full), j.current)
		mustClose(t, j)
		for _, s := range all {
			got := len(contents(t, o.FS, o.Dir)[segmentName(s.number)])
			if exact := s.size == o.SegmentSize; exact && int64(got) != s.size || int64(got) > s.size {
				t.Errorf("with records of %d bytes, segment %d has %d bytes, want the %d filled ones", n, s.number, got, s.size)
			}
		}
	}
}

// The old frames must be ignored wherever the new frames end.
func TestOldFramesOfAReusedFileAreNotFrames(t *testing.T) {
	o := testOptions(vfs.NewMem())
	j := mustOpen(t, o)
	mustWrite(t, j, numbered(1, 60)...) // equal sizes, so each new frame ends where an old one did
	j.filler.Wait()                     // so that segment 2 takes the spare, and segment 3 the first file
	mustRotate(t, j)
	if err := j.Release(60); err != nil {
		t.Fatal(err)
	}
	mustRotate(t, j)
	b := memory(t, o, segmentName(3))
	if !strings.Contains(string(b), "record 60") {
		t.Fatal("the journal has not reused the first file")
	}
	for n := 61; n <= 70; n++ {
		mustWrite(t, j, fmt.Sprint("record ", n))
		o := o
		o.FS, o.From = diskOf(t, contents(t, o.FS, o.Dir)), 60
		again := mustOpen(t, o)
		wantPayloads(t, payloads(t, again, 60), numbered(61, n))
		mustClose(t, again)
	}
	mustClose(t, j)
}

// Behind a torn write, the file has the rest of an earlier payload, which may complete the record.
func TestATornRecordIsNoneEvenIfItsRestFits(t *testing.T) {
	checked := func(n uint64) (p []byte) {
		for i := range uint64(50) {
			p = binary.LittleEndian.AppendUint64(p, n+i)
			p = binary.LittleEndian.AppendUint32(p, crc32.Checksum(p[len(p)-8:], crc32.MakeTable(crc32.Castagnoli)))
		}
		return p
	}
	cut := failing{kind: "write", path: ".seg", err: unix.EIO}
	for cut.part = 0; cut.part < 640; cut.part += 12 {
		o := testOptions(newTrapFS(vfs.NewMem(), cut.hook))
		j := mustOpen(t, o)
		mustWrite(t, j, string(checked(1000)))
		mustRotate(t, j)
		if err := j.Release(1); err != nil {
			t.Fatal(err)
		}
		mustRotate(t, j) // reuses the first file
		cut.on.Store(true)
		if _, err := j.Append(checked(2000)); !errors.Is(err, unix.EIO) {
			t.Fatalf("Append returned %v, want EIO", err)
		}
		cut.on.Store(false)
		abandon(j)
		o.From = 1
		j = mustOpen(t, o)
		if got := payloads(t, j, 1); len(got) > 0 {
			t.Errorf("after a write that was cut at %d, Open found %d records, want none", cut.part, len(got))
		}
		mustClose(t, j)
	}
}

// The journal must not fill the file of a large record first: the writer would wait for a sync of
// each step.
func TestALargeRecordCostsNoMoreSyncsThanASmallOne(t *testing.T) {
	var syncs atomic.Int64
	o := testOptions(newTrapFS(vfs.NewMem(), func(o op) (int, error) {
		if o.kind == "sync" {
			syncs.Add(1)
		}
		return o.size, nil
	}))
	o.SegmentSize = 2 * fillStep
	count := func(size int) int64 {
		j := mustOpen(t, o)
		defer mustClose(t, j)
		mustWrite(t, j, "small")
		before := syncs.Load()
		mustWrite(t, j, strings.Repeat("x", size))
		j.filler.Wait()
		return syncs.Load() - before
	}
	small, large := count(2*fillStep-headerSize-2*headSize), count(20<<20)
	if large > small {
		t.Errorf("a record of 20 MiB takes %d syncs, want at most the %d of a record that fills a segment", large, small)
	}
	j := mustOpen(t, o)
	defer mustClose(t, j)
	if got := payloads(t, j, 0); len(got) != 4 || len(got[3]) != 20<<20 {
		t.Errorf("the journal has %d records, want 4, of which the last has 20 MiB", len(got))
	}
}

func TestALargeSegmentIsNoSpare(t *testing.T) {
	o := testOptions(vfs.NewMem())
	j := mustOpen(t, o)
	mustWrite(t, j, "small", strings.Repeat("x", 100_000), "small again")
	mustRotate(t, j)
	if err := j.Release(3); err != nil {
		t.Fatal(err)
	}
	for name, b := range contents(t, o.FS, o.Dir) {
		if len(b) != 2*block {
			t.Errorf("%s has %d bytes, want two blocks", name, len(b))
		}
	}
	mustClose(t, j)
}

// If an earlier start left a segment without a record, the next start replaces this segment. So
// failing starts need no more space.
func TestStartsThatFailAgainAndAgainNeedNoMoreSpace(t *testing.T) {
	o := testOptions(vfs.NewMem())
	j := mustOpen(t, o)
	mustWrite(t, j, numbered(1, 3)...)
	abandon(j)
	for i := range 20 {
		j := mustOpen(t, o)
		wantPayloads(t, payloads(t, j, 0), numbered(1, 3))
		if i%2 == 0 {
			abandon(j)
		} else {
			mustClose(t, j)
		}
	}
	if segments, spares := filesOf(t, o); segments != 2 || spares > keepFiles-1 {
		t.Errorf("the journal has %d segments and %d spares, want 2 and at most %d", segments, spares, keepFiles-1)
	}
}

// Frames behind a torn end were never durable. They must not reappear behind later records.
func TestNothingIsWrittenBehindATornEnd(t *testing.T) {
	o := testOptions(vfs.NewMem())
	j := mustOpen(t, o)
	mustWrite(t, j, "record 1")
	torn := j.offset
	mustAppend(t, j, "torn off")
	mustAppend(t, j, "valid, and behind it")
	abandon(j)
	memory(t, o, segmentName(1))[torn+headSize]++
	j = mustOpen(t, o)
	mustWrite(t, j, "record 2")
	abandon(j)
	memory(t, o, segmentName(1))[torn+headSize]-- // makes the torn frame valid again
	j = mustOpen(t, o)
	defer mustClose(t, j)
	wantPayloads(t, payloads(t, j, 0), numbered(1, 2))
}

// Leftovers are files that were not filled to the end, or files of another segment size.
func TestLeftoversOfAnEarlierRunAreNotSpares(t *testing.T) {
	fsys := diskOf(t, map[string][]byte{
		"spare-0000000007": make([]byte, block),
		"spare-0000000008": make([]byte, 3*block),
		"spare-0000000009": make([]byte, 2*block),
		"spare-0000000010": make([]byte, 2*block),
		"spare-0000000011": make([]byte, 2*block),
		"spare-0000000012": make([]byte, 2*block),
		"spare-12":         nil, // not a file of the journal
		"notes.txt":        nil,
	})
	o := testOptions(fsys)
	j := mustOpen(t, o)
	defer mustClose(t, j)
	want := []string{segmentName(1), "notes.txt", "spare-0000000009", "spare-0000000010", "spare-12"}
	names, err := fsys.List(o.Dir)
	if slices.Sort(names); err != nil || !slices.Equal(names, want) {
		t.Errorf("the files are %v, %v, want %v", names, err, want)
	}
	if j.lastSpare != 12 {
		t.Errorf("the last spare was %d, want 12", j.lastSpare)
	}
}

// The writer must use one open file for the header and the records of a segment.
func TestASegmentIsOpenedOnce(t *testing.T) {
	var mu sync.Mutex
	var opened []string
	o := testOptions(newTrapFS(vfs.NewMem(), func(at op) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if at.kind == "open" {
			opened = append(opened, at.path)
		}
		return at.size, nil
	}))
	j := mustOpen(t, o)
	defer mustClose(t, j)
	mustWrite(t, j, "record 1")
	mustRotate(t, j)
	mustWrite(t, j, "record 2")
	mu.Lock()
	for _, path := range opened {
		if strings.HasSuffix(path, ".seg") {
			t.Errorf("%s was opened again under its name as a segment", path)
		}
	}
	mu.Unlock()
	path, info := j.Current()
	if now, err := o.FS.Stat(path); err != nil || now.Size() != info.Size() {
		t.Errorf("Current returns %s with %d bytes, but Stat returns %v, %v", path, info.Size(), now, err)
	}
}

// The journal appends more records while the test reads.
func TestRecordsOfTheSegmentThatIsWrittenAreReadUpToTheDurableOne(t *testing.T) {
	j := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, j)
	mustWrite(t, j, numbered(1, 2)...)
	mustRotate(t, j)
	mustWrite(t, j, numbered(3, 5)...)
	mustAppend(t, j, "not durable")
	for after := range uint64(6) {
		got := []string{}
		for r, err := range j.Records(after, j.Durable()) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(r.Payload))
		}
		wantPayloads(t, got, numbered(int(after)+1, 5))
	}
}
