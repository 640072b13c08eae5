package journal

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// failing is a disk on which operations of one kind can fail.
type failing struct {
	kind string
	path string // only operations on paths that contain it fail
	part int    // bytes of a failing write that are written
	err  error  // nil = a short write returns no error, against the rules of WriteAt
	on   atomic.Bool
	hits atomic.Int32
}

func (f *failing) hook(o op) (int, error) {
	if !f.on.Load() || o.kind != f.kind || !strings.Contains(o.path, f.path) {
		return o.size, nil
	}
	f.hits.Add(1)
	return f.part, f.err
}

// After a failed write or sync, nobody knows what is on disk. A second success proves nothing about
// the first try.
func TestAfterAFailureNothingIsWritten(t *testing.T) {
	large := strings.Repeat("x", 3000) // the second of these needs a new segment
	for name, test := range map[string]struct {
		fault *failing
		want  error
	}{
		"no space for a record":     {&failing{kind: "write", path: ".seg", err: unix.ENOSPC}, unix.ENOSPC},
		"a torn record":             {&failing{kind: "write", path: ".seg", part: 1000, err: unix.EIO}, unix.EIO},
		"a short record":            {&failing{kind: "write", path: ".seg", part: 1000}, io.ErrShortWrite},
		"a failed sync":             {&failing{kind: "sync", path: ".seg", err: unix.EIO}, unix.EIO},
		"no space for a segment":    {&failing{kind: "write", path: "spare", err: unix.ENOSPC}, unix.ENOSPC},
		"a failed sync of a header": {&failing{kind: "sync", path: "spare", err: unix.EIO}, unix.EIO},
		"no file for a segment":     {&failing{kind: "open", path: "spare", err: unix.EROFS}, unix.EROFS},
		"a failed rename":           {&failing{kind: "rename", path: "spare", err: unix.EROFS}, unix.EROFS},
		"a failed directory sync":   {&failing{kind: "sync", path: "journal", err: unix.EIO}, unix.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			fault := test.fault
			o := testOptions(newTrapFS(vfs.NewMem(), fault.hook))
			j := mustOpen(t, o)
			mustWrite(t, j, large)
			fault.on.Store(true)
			_, err := j.Append([]byte(large))
			if err == nil {
				err = j.Sync()
			}
			if !errors.Is(err, test.want) {
				t.Fatalf("the failing operation returned %v, want %v", err, test.want)
			}
			fault.on.Store(false)
			if _, again := j.Append(nil); again != err {
				t.Errorf("after the failure, Append returned %v, want %v", again, err)
			}
			if again := j.Sync(); again != err {
				t.Errorf("after the failure, Sync returned %v, want %v", again, err)
			}
			if again := j.Release(0); again != err {
				t.Errorf("after the failure, Release returned %v, want %v", again, err)
			}
			if n := j.Durable(); n != 1 {
				t.Errorf("Durable is %d, want 1", n)
			}
			for range 2 {
				if again := j.Close(); again != err {
					t.Errorf("after the failure, Close returned %v, want %v", again, err)
				}
			}
			j = mustOpen(t, o)
			defer mustClose(t, j)
			if got := payloads(t, j, 0); len(got) == 0 || got[0] != large {
				t.Error("the journal has lost the first record")
			}
		})
	}
}

func TestAFailedSealIsAnErrorOfClose(t *testing.T) {
	for _, kind := range []string{"write", "sync"} {
		fault := &failing{kind: kind, path: ".seg", err: unix.EIO}
		j := mustOpen(t, testOptions(newTrapFS(vfs.NewMem(), fault.hook)))
		mustWrite(t, j, "record 1")
		fault.on.Store(true)
		for range 2 {
			if err := j.Close(); !errors.Is(err, unix.EIO) {
				t.Errorf("after a failed %s, Close returned %v, want EIO", kind, err)
			}
		}
	}
}

// A failure to fill a spare is not fatal, since the journal needs the spare only later.
func TestAFailureToFillAheadDoesNotFailTheJournal(t *testing.T) {
	fault := &failing{kind: "write", path: "spare", err: unix.ENOSPC}
	o := testOptions(newTrapFS(vfs.NewMem(), fault.hook))
	j := mustOpen(t, o)
	fault.on.Store(true)
	large := strings.Repeat("x", 1500)
	for _, p := range []string{large, large, "more than half of the segment is full"} {
		mustWrite(t, j, p)
		j.filler.Wait()
	}
	if fault.hits.Load() != 1 {
		t.Errorf("the journal tried to fill %d files, want 1", fault.hits.Load())
	}
	if _, spares := filesOf(t, o); spares+len(j.spares) > 0 {
		t.Errorf("the directory has %d spare files, and the journal lists the spares %v, want none", spares, j.spares)
	}
	fault.on.Store(false)
	mustWrite(t, j, large, large)
	mustClose(t, j)
	j = mustOpen(t, o)
	defer mustClose(t, j)
	if n := len(payloads(t, j, 0)); n != 5 {
		t.Errorf("the journal has %d records, want 5", n)
	}
}

// Close waits for the filler, and makes it stop early.
func TestCloseWaitsForTheFiller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed := make(chan bool)
		var slow atomic.Bool
		o := testOptions(newTrapFS(vfs.NewMem(), func(o op) (int, error) {
			if slow.Load() && o.kind == "sync" && strings.Contains(o.path, "spare") {
				<-proceed
			}
			return o.size, nil
		}))
		o.SegmentSize = 4 * fillStep
		j := mustOpen(t, o)
		slow.Store(true)
		mustWrite(t, j, strings.Repeat("x", 3*fillStep))
		synctest.Wait() // for the filler's first sync
		closed := false
		go func() {
			mustClose(t, j)
			closed = true
		}()
		synctest.Wait()
		if closed {
			t.Error("Close returned before the filler")
		}
		close(proceed)
		synctest.Wait()
		if _, spares := filesOf(t, o); !closed || spares > 0 {
			t.Errorf("closed is %v and %d spares are left; want Close to return, and to leave no spare", closed, spares)
		}
	})
}

// If reading a record fails, Open must not take the record for a torn end.
func TestAnErrorOfReadingIsNotTheEnd(t *testing.T) {
	o, places := damageable(t, false)
	before := contents(t, o.FS, o.Dir)
	for _, p := range append(places, position{file: segmentName(3)}, position{file: segmentName(4), offset: 6000}) {
		o.FS = unreadable{o.FS, p}
		if _, err := Open(o); !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), p.file) {
			t.Errorf("if %+v cannot be read, Open returns %v, want EIO with the name of the file", p, err)
		}
		o.FS = o.FS.(unreadable).FS
		wantUnchanged(t, o, before)
	}
}

type unreadable struct {
	vfs.FS
	position
}

func (u unreadable) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := u.FS.Open(name, opts...)
	if err == nil && u.PathBase(name) == u.file {
		f = unreadableFile{f, u.offset}
	}
	return f, err
}

type unreadableFile struct {
	vfs.File
	offset int64
}

func (f unreadableFile) ReadAt(p []byte, offset int64) (int, error) {
	if readable := f.offset - offset; readable < int64(len(p)) {
		n, _ := f.File.ReadAt(p[:max(readable, 0)], offset)
		return n, unix.EIO
	}
	return f.File.ReadAt(p, offset)
}

// After a failed sync, Linux may still return the written data to readers. But it never writes this
// data to the disk, and the next sync succeeds.
func TestRecordsLostByASyncAreWrittenAgainBeforeRecovery(t *testing.T) {
	disk := vfs.NewCrashableMem()
	forgetful := &forgetfulFS{FS: disk, dirty: map[string][]dirt{}}
	o := testOptions(forgetful)
	j := mustOpen(t, o)
	mustWrite(t, j, numbered(1, 2)...)
	mustAppend(t, j, "record 3")
	forgetful.fail.Store(true)
	if err := j.Sync(); !errors.Is(err, unix.EIO) {
		t.Fatalf("Sync returned %v, want EIO", err)
	}
	forgetful.fail.Store(false)
	abandon(j)
	j = mustOpen(t, o) // now the journal has record 3
	wantPayloads(t, payloads(t, j, 0), numbered(1, 3))
	abandon(j)
	o.FS = forgetful.lossOfPower()
	j = mustOpen(t, o)
	defer mustClose(t, j)
	wantPayloads(t, payloads(t, j, 0), numbered(1, 3))
}

// forgetfulFS is a disk with a page cache like Linux's. After a failed sync, data that is not on
// disk is still readable. A later sync writes this data only if somebody has written it again.
type forgetfulFS struct {
	vfs.FS
	fail atomic.Bool

	mu    sync.Mutex // protects the fields below
	files []*forgetfulFile
	dirty map[string][]dirt // writes since the last sync, by path
	lost  []dirt
}

type dirt struct {
	path   string
	offset int64
	size   int
}

func (f *forgetfulFS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, file := range f.files {
		if file.path == from {
			file.path = to
		}
	}
	for i := range f.lost {
		if f.lost[i].path == from {
			f.lost[i].path = to
		}
	}
	f.dirty[to] = f.dirty[from]
	delete(f.dirty, from)
	return f.FS.Rename(from, to)
}

func (f *forgetfulFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, opts...)
	opened := &forgetfulFile{file, f, name}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files = append(f.files, opened)
	return opened, err
}

// lossOfPower returns the disk without the page cache.
func (f *forgetfulFS) lossOfPower() vfs.FS {
	disk := f.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
	for _, d := range f.lost {
		b, err := disk.UnsafeGetFileDataBuffer(d.path)
		if err != nil {
			panic(err)
		}
		clear(b[d.offset : d.offset+int64(d.size)])
	}
	return disk
}

type forgetfulFile struct {
	vfs.File
	fs   *forgetfulFS
	path string
}

func (f *forgetfulFile) WriteAt(p []byte, offset int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.fs.lost = slices.DeleteFunc(f.fs.lost, func(d dirt) bool {
		return d.path == f.path && d.offset >= offset && d.offset+int64(d.size) <= offset+int64(len(p))
	})
	f.fs.dirty[f.path] = append(f.fs.dirty[f.path], dirt{f.path, offset, len(p)})
	return f.File.WriteAt(p, offset)
}

func (f *forgetfulFile) SyncData() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.fs.fail.Load() {
		f.fs.lost = append(f.fs.lost, f.fs.dirty[f.path]...)
		return unix.EIO
	}
	delete(f.fs.dirty, f.path)
	return f.File.SyncData()
}
