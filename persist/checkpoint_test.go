package persist

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/simba-resp/simba-resp"
)

func rowsOf(t *testing.T, db *pebble.DB) map[string]string {
	t.Helper()
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	rows := map[string]string{}
	for ok := it.First(); ok; ok = it.Next() {
		rows[string(it.Key())] = string(it.Value())
	}
	return rows
}

// records returns the records that a store writes for changes, one record for each list.
func records(t *testing.T, lists ...[]simba.Change) (written [][]byte) {
	t.Helper()
	o := testOptions(t, vfs.NewMem(), Always)
	if err := o.ensureDefaults(); err != nil {
		t.Fatal(err)
	}
	r := run{generation: 1}
	c := newCommitter(&o, r, floors{}, newFault(o.Fatal), func(record []byte) error {
		written = append(written, bytes.Clone(record))
		return nil
	})
	for _, changes := range lists {
		for _, ch := range changes {
			c.Append(ch)
		}
		if err := c.writeAll(false); err != nil {
			t.Fatal(err)
		}
	}
	return written
}

func TestRecordsThatAreReplayedAgainChangeNothing(t *testing.T) {
	var changes [][]simba.Change
	for _, ch := range []simba.Change{put(1, "a"), put(2, "b"), del(3, "a"), note(4), put(5, "c"), del(6, "b"), put(7, "a"), put(8, "a")} {
		changes = append(changes, []simba.Change{ch})
	}
	list := records(t, changes...)
	for step := 1; step <= len(list); step++ {
		db, err := pebble.Open("data", &pebble.Options{FS: vfs.NewMem(), Logger: pebbleLogger{Logger: testOptions(t, nil, Always).Logger}})
		if err != nil {
			t.Fatal(err)
		}
		replay := func(from int) map[string]string {
			c := newCheckpoint(db, meta{Index: uint64(from)}, 3)
			if _, err := c.readHistory(); err != nil {
				t.Fatal(err)
			}
			for i := from; i < len(list); i++ {
				if err := c.add(uint64(i+1), bytes.Clone(list[i])); err != nil {
					t.Fatal(err)
				}
				if (i+1)%step == 0 || i == len(list)-1 {
					if err := c.write(); err != nil {
						t.Fatal(err)
					}
				}
			}
			return rowsOf(t, db)
		}
		want := replay(0)
		if len(want) != 1+2+3 {
			t.Errorf("replay stored %d rows, want a meta row, 2 leases and 3 events: %q", len(want), want)
		}
		for from := range list {
			if got := replay(from); !maps.Equal(got, want) {
				t.Fatalf("after a second replay from record %d, in steps of %d, the rows are %q, want %q", from+1, step, got, want)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestARecordKeepsTheLastChangeOfEachMutexWhenItIsLarge(t *testing.T) {
	fsys := vfs.NewMem()
	o := testOptions(t, fsys, Always)
	s, _ := mustOpen(t, o)
	large := strings.Repeat("x", 64<<10)
	const changes = 1600
	want := map[string]uint64{}
	for seq := simba.Seq(1); seq <= changes; seq++ {
		mutex := fmt.Sprint("m", seq%8)
		ch := put(seq, mutex)
		ch.Lease.Fields = []simba.Field{{Name: "f", Value: large}}
		if want[mutex] = uint64(seq); seq%100 == 0 {
			ch = del(seq, mutex)
			delete(want, mutex)
		}
		s.Append(ch)
		if n := len(s.next.record); n > 2*maxPending+len(large)+1000 {
			t.Fatalf("the record of 8 leases of 64 KiB has %d bytes, but it should have been reduced", n)
		}
	}
	mustCommit(t, s, changes)
	mustClose(t, s)
	_, r := openClosed(t, o)
	got := map[string]uint64{}
	for mutex, l := range leasesOf(t, r) {
		got[mutex] = l.Token - uint64(zero)
	}
	if !maps.Equal(got, want) || len(r.History) != changes || r.Seq != abs(changes) {
		t.Errorf("recovered tokens %v, want %v; recovered %d events, want %d", got, want, len(r.History), changes)
	}
}

func TestReducingALargeRecordChangesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var changes []simba.Change
		for seq := range simba.Seq(rng.IntN(40)) {
			ch := put(seq+1, fmt.Sprint("m", rng.IntN(5)))
			switch rng.IntN(4) {
			case 0:
				ch = del(ch.Seq, ch.Lease.Mutex)
			case 1:
				ch = note(ch.Seq)
			}
			changes = append(changes, ch)
		}
		record := records(t, changes)[0]
		replay := func(record []byte) *checkpoint {
			c := newCheckpoint(nil, meta{}, 100)
			if err := c.add(1, record); err != nil {
				t.Fatal(err)
			}
			return c
		}
		want := replay(bytes.Clone(record))
		short := lastChanges(bytes.Clone(record))
		got := replay(short)
		if got.meta != want.meta || !reflect.DeepEqual(got.leases, want.leases) || !reflect.DeepEqual(got.history, want.history) {
			t.Errorf("lastChanges cut a record of %d bytes to %d, which replays to %+v, want %+v", len(record), len(short), got, want)
		}
		if n := len(lastChanges(bytes.Clone(short))); n != len(short) {
			t.Errorf("a second lastChanges cut a record of %d bytes to %d, want no change", len(short), n)
		}
	}
}

// heldBack returns a file system that blocks the creation of files between hold and release. So
// Pebble can write no tables, but the journal can still use its files.
func heldBack(inner vfs.FS) (fsys vfs.FS, hold func() (release func())) {
	var gate atomic.Pointer[chan struct{}]
	fsys = errorfs.Wrap(inner, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if g := gate.Load(); g != nil && op.Kind == errorfs.OpCreate {
			<-*g
		}
		return nil
	}))
	return fsys, func() func() {
		g := make(chan struct{})
		gate.Store(&g)
		return sync.OnceFunc(func() { close(g) })
	}
}

// openHeldBack opens a store with small segments, whose checkpoint stands still between hold and
// release.
func openHeldBack(t *testing.T) (s *Store, hold func() (release func())) {
	fsys, hold := heldBack(vfs.NewMem())
	o := testOptions(t, fsys, Always)
	o.SegmentSize = 8 << 10
	s, _ = openClosed(t, o)
	return s, hold
}

func (s *Store) isTooFarBehind() bool { return s.checkpoints.behind() > maxBehind*s.checkpoints.step }

func TestTheWriterWaitsForACheckpointThatIsTooFarBehind(t *testing.T) {
	s, hold := openHeldBack(t)
	release := hold()
	defer release()
	written := make(chan simba.Seq, 1000)
	go func() {
		defer close(written)
		for seq := simba.Seq(1); seq <= 300; seq++ {
			s.Append(put(seq, fmt.Sprint("m", seq)))
			if err := s.Commit(abs(seq)); err != nil {
				t.Error(err)
				return
			}
			written <- seq
		}
	}()
	await(t, "the checkpoint is too far behind", s.isTooFarBehind)
	time.Sleep(20 * time.Millisecond) // a writer that wrongly does not wait needs time
	if n := s.checkpoints.behind(); n != (maxBehind+1)*s.checkpoints.step {
		t.Errorf("full segments of %d bytes wait for the checkpoint, want %d", n, (maxBehind+1)*s.checkpoints.step)
	}
	if len(written) == 300 {
		t.Error("the writer does not wait for the checkpoint: it has written everything")
	}
	release()
	for seq := range written {
		if seq == 300 {
			return
		}
	}
	t.Error("the writer does not continue after the checkpoint has advanced")
}

func TestTheWriterWaitsForBytesNotForSegments(t *testing.T) {
	s, hold := openHeldBack(t)
	release := hold()
	defer release()
	large := strings.Repeat("x", 1<<20) // fills a segment
	errs := make(chan error, 10)
	go func() {
		defer close(errs)
		for seq := simba.Seq(1); seq <= 10; seq++ {
			ch := put(seq, "m")
			ch.Lease.Fields = []simba.Field{{Name: "f", Value: large}}
			s.Append(ch)
			errs <- s.Commit(abs(seq))
		}
	}()
	await(t, "the checkpoint is too far behind", func() bool { return s.isTooFarBehind() && len(errs) >= 2 })
	time.Sleep(50 * time.Millisecond) // a writer that wrongly does not wait needs time
	if n := len(errs); n != 2 {
		t.Errorf("%d records of 1 MiB are written while the checkpoint stands still, want 2", n)
	}
	release()
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestTheJournalHasAtMostFourFilesOfASegmentsSize(t *testing.T) {
	fsys, hold := heldBack(vfs.NewMem())
	o := testOptions(t, fsys, Always)
	o.SegmentSize = 8 << 10
	s, _ := openClosed(t, o)
	seq := simba.Seq(0)
	write := func(n int) {
		for range n {
			seq++
			s.Append(put(seq, "m"))
			mustCommit(t, s, seq)
		}
	}
	size := func() (size int64) {
		names, err := fsys.List("data/journal")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if info, err := fsys.Stat("data/journal/" + name); err == nil {
				size += info.Size()
			}
		}
		return size
	}
	// A checkpoint only releases the segments of the checkpoint before it. So for a while there may
	// be one more file.
	awaitSmall := func() {
		t.Helper()
		await(t, "the journal has at most four files", func() bool { return size() <= 4*o.SegmentSize })
	}
	for range 5 {
		release := hold()
		done := make(chan struct{})
		go func() {
			defer close(done)
			write(300)
		}()
		await(t, "the checkpoint is too far behind", s.isTooFarBehind)
		time.Sleep(10 * time.Millisecond) // the journal fills a spare meanwhile
		awaitSmall()
		release()
		<-done
		awaitCheckpoint(t, s)
		time.Sleep(10 * time.Millisecond)
		awaitSmall()
	}
}

func TestNobodyWaitsForACheckpointThatRuns(t *testing.T) {
	s, hold := openHeldBack(t)
	release := hold()
	defer release()
	for seq := simba.Seq(1); s.checkpoints.behind() < maxBehind*s.checkpoints.step; seq++ {
		s.Append(put(seq, "m"))
		mustCommit(t, s, seq)
	}
	release()
	awaitCheckpoint(t, s)
}

func TestACheckpointThatHangsIsFatalWhenTheWriterWaitsForIt(t *testing.T) {
	for name, test := range map[string]struct {
		hangs func(errorfs.Op) bool
		after time.Duration
	}{
		"a write": {func(op errorfs.Op) bool { return op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") }, 10 * time.Second},
		"a read":  {func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileReadAt && isSegment(op) }, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				var hang atomic.Bool
				o := testOptions(t, wrapFS(vfs.NewMem(), func(op errorfs.Op) error {
					if hang.Load() && test.hangs(op) {
						<-release
					}
					return nil
				}), Always)
				o.SegmentSize, o.CommitTimeout = 8<<10, 10*time.Second
				fatal := failing(&o)
				s, _ := mustOpen(t, o)
				hang.Store(true)
				var err error
				var began time.Time
				for seq := simba.Seq(1); err == nil; seq++ {
					s.Append(put(seq, "m"))
					began = time.Now()
					err = s.Commit(abs(seq))
				}
				if took := time.Since(began); took != test.after {
					t.Errorf("the waiting commit returns after %v, want %v", took, test.after)
				}
				if !errors.Is(err, simba.ErrStopped) {
					t.Errorf("Commit = %v, want ErrStopped", err)
				}
				if err := <-fatal; !errors.Is(err, errCheckpointTimeout) {
					t.Errorf("Fatal got %v, want the timeout", err)
				}
				if err := s.Close(); !errors.Is(err, errCheckpointTimeout) {
					t.Errorf("Close = %v, want the timeout", err)
				}
				close(release)
			})
		})
	}
}

func TestACheckpointThatIsSlowerThanACommitMayBeEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := wrapFS(vfs.NewMem(), func(op errorfs.Op) error {
			switch {
			case op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, ".sst"):
				time.Sleep(9 * time.Second)
			case op.Kind == errorfs.OpFileReadAt && isSegment(op) && op.Offset == 4096:
				// Here the checkpoint reads the first frame.
				time.Sleep(12 * time.Second)
			}
			return nil
		})
		o := testOptions(t, fsys, Always)
		o.SegmentSize, o.CommitTimeout = 8<<10, 10*time.Second
		s, _ := mustOpen(t, o)
		began, longest := time.Now(), time.Duration(0)
		for seq := simba.Seq(1); time.Since(began) < time.Hour; seq++ {
			s.Append(put(seq, "m"))
			asked := time.Now()
			mustCommit(t, s, seq)
			longest = max(longest, time.Since(asked))
		}
		mustClose(t, s)
		if longest < 3*o.CommitTimeout {
			t.Errorf("the longest wait of a commit was %v, want a wait for the checkpoint", longest)
		}
	})
}

// digest returns a sum of all files in a folder, and in the folders below, with their names.
func digest(t *testing.T, fsys vfs.FS, folder string) (sum [sha256.Size]byte) {
	t.Helper()
	names, err := fsys.List(folder)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	h := sha256.New()
	for _, name := range names {
		path := fsys.PathJoin(folder, name)
		info, err := fsys.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(h, "%q %v ", name, info.IsDir())
		if info.IsDir() {
			below := digest(t, fsys, path)
			_, _ = h.Write(below[:])
			continue
		}
		text, err := readFile(fsys, folder, name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(h, "%d ", len(text))
		_, _ = h.Write(text)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Before each operation of a run, the test copies the disk as a loss of power would leave it. The
// run fills, releases and reuses several segments.
func TestALossOfPowerBeforeEachOperation(t *testing.T) {
	type picture struct {
		fsys      *vfs.MemFS
		committed simba.Seq
	}
	disk := vfs.NewCrashableMem()
	var mu sync.Mutex
	var store *Store
	var pictures []picture
	taken := map[string]bool{} // pictures, so that none is there twice
	rng := rand.New(rand.NewPCG(1, 1))
	seen := map[string]bool{}
	o := testOptions(t, errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if op.Kind == errorfs.OpRename && isSegment(op) {
			seen["release"] = true
		}
		var p picture
		if store != nil {
			p.committed = store.Committed() - zero
		}
		for _, percent := range []int{0, 50} {
			p.fsys = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
			if id := fmt.Sprintf("%d %x", p.committed, digest(t, p.fsys, "/")); !taken[id] {
				taken[id] = true
				pictures = append(pictures, p)
			}
		}
		return nil
	})), Always)
	o.SegmentSize = 8 << 10
	s, _ := mustOpen(t, o)
	mu.Lock()
	store = s
	mu.Unlock()
	const changes = 100
	for seq := simba.Seq(1); seq <= changes; seq++ {
		s.Append(put(seq, fmt.Sprint("m", seq%7)))
		mustCommit(t, s, seq)
	}
	awaitCheckpoint(t, s)
	mustClose(t, s)
	if !seen["release"] {
		t.Error("no segment was released")
	}
	for i, p := range pictures {
		if underRace && i%10 != 0 {
			continue
		}
		o.FS = p.fsys
		s, r := mustOpen(t, o)
		kept := simba.Seq(0)
		if n := len(r.History); n > 0 {
			kept = r.History[n-1].Seq - zero
		}
		if kept < p.committed || kept > p.committed+1 {
			t.Fatalf("picture %d: changes up to %d were committed, and those up to %d are recovered, want all committed ones and at most one more", i, p.committed, kept)
		}
		leases := leasesOf(t, r)
		if want := min(int(kept), 7); len(leases) != want {
			t.Fatalf("picture %d: recovered %d leases, want %d", i, len(leases), want)
		}
		for seq := max(1, int(kept)-6); seq <= int(kept); seq++ {
			if got := leases[fmt.Sprint("m", seq%7)].Token - uint64(zero); got != uint64(seq) {
				t.Fatalf("picture %d: mutex m%d has token %d after change %d, want %d", i, seq%7, got, kept, seq)
			}
		}
		mustClose(t, s)
	}
}
