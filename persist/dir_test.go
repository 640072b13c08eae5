package persist

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"weak"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/need"
)

// wantRefusal checks that Open returns an error that matches want. Its message must be one line,
// with the directory and text. Open must also unlock the directory.
func wantRefusal(t *testing.T, o Options, want error, text string) {
	t.Helper()
	s, _, err := Open(o)
	if err == nil {
		mustClose(t, s)
	}
	if !errors.Is(err, want) {
		t.Fatalf("Open = %v, want %v", err, want)
	}
	msg := err.Error()
	if strings.Contains(msg, "\n") || !strings.Contains(msg, "data directory "+o.Dir) || !strings.Contains(msg, text) {
		t.Errorf("Open = %q, want one line with the directory and %q", msg, text)
	}
	if errors.Is(err, ErrInUse) {
		return
	}
	lock, err := lockDir(vfs.Default, o.Dir)
	if o.FS != nil {
		lock, err = lockDir(o.FS, o.Dir)
	}
	if err == nil {
		err = lock.Close()
	}
	if errors.Is(err, ErrInUse) {
		t.Errorf("the directory is still locked: %v", err)
	}
}

func diskOptions(t testing.TB) Options {
	o := testOptions(t, nil, Always)
	o.Dir = filepath.Join(t.TempDir(), "a", "data")
	return o
}

// filled makes a directory with a store of one lease, and returns the options to open it.
func filled(t *testing.T) Options {
	o := diskOptions(t)
	s, _ := mustOpen(t, o)
	s.Append(put(1, "m"))
	mustCommit(t, s, 1)
	mustClose(t, s)
	return o
}

func TestTheDirectoryIsMadeForItsOwnerOnly(t *testing.T) {
	o := filled(t)
	info, err := os.Stat(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o700 {
		t.Errorf("the directory has mode %o, want 700", got)
	}
	_, r := openClosed(t, o)
	if got := leasesOf(t, r); len(got) != 1 {
		t.Errorf("the recovered leases are %v, want one", got)
	}
}

func TestADirectoryInUseIsRefused(t *testing.T) {
	o := diskOptions(t)
	openClosed(t, o)
	wantRefusal(t, o, ErrInUse, "is in use by another process")

	mem := testOptions(t, vfs.NewMem(), Always)
	openClosed(t, mem)
	wantRefusal(t, mem, ErrInUse, "is in use by another process")

	// If another process has the lock, fcntl(2) returns EAGAIN or EACCES.
	for _, number := range []syscall.Errno{syscall.EAGAIN, syscall.EACCES} {
		mem.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpLock {
				return number
			}
			return nil
		}))
		wantRefusal(t, mem, ErrInUse, "is in use by another process")
	}
}

func TestADirectoryThatCannotBeWrittenIsRefused(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpMkdirAll, errorfs.OpCreate, errorfs.OpLock} {
		o := testOptions(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == kind {
				return &fs.PathError{Op: "open", Path: op.Path, Err: syscall.EACCES}
			}
			return nil
		})), Always)
		wantRefusal(t, o, fs.ErrPermission, "permission denied")
	}
	o := diskOptions(t)
	o.Dir = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(o.Dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, o, syscall.ENOTDIR, "not a directory")
}

func TestAForeignDirectoryIsRefusedAndLeftAlone(t *testing.T) {
	o := testOptions(t, vfs.Default, Always)
	wantForeign := func(text string) {
		t.Helper()
		before, _ := filepath.Glob(filepath.Join(o.Dir, "*"))
		want := "data directory " + o.Dir + " is not empty and not a data directory of simba-resp: " + text
		if _, _, err := Open(o); !errors.Is(err, ErrForeign) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Open = %v, want %s", err, want)
		}
		if after, _ := filepath.Glob(filepath.Join(o.Dir, "*")); len(after) != len(before) {
			t.Errorf("the refused Open changed the files %v to %v", before, after)
		}
	}
	write := func(name string) {
		if err := os.WriteFile(filepath.Join(o.Dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.Dir = t.TempDir()
	write("precious")
	write(".hidden")
	wantForeign(`it has "precious"`)
	write("more")
	write("a\n")
	wantForeign(`it has "a\n" and 2 more`)

	o.Dir = t.TempDir()
	db, err := pebble.Open(o.Dir, &pebble.Options{Logger: pebbleLogger{Logger: o.Logger}})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	wantForeign(`it has "`)
}

func TestFilesOfFileSystemsAndEditorsAreNotForeign(t *testing.T) {
	o := testOptions(t, vfs.Default, Always)
	o.Dir = t.TempDir()
	for _, name := range []string{"lost+found", ".snapshot"} {
		if err := os.Mkdir(filepath.Join(o.Dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".nfs000000000000a1b200000001", ".DS_Store", ".keep"} {
		if err := os.WriteFile(filepath.Join(o.Dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, _ := mustOpen(t, o)
	s.Append(put(1, "m"))
	mustCommit(t, s, 1)
	mustClose(t, s)
	_, r := openClosed(t, o) // Pebble ignores these files too
	if got := leasesOf(t, r); len(got) != 1 {
		t.Errorf("the recovered leases are %v, want one", got)
	}
}

func TestADirectoryWithAnotherSignIsRefusedByName(t *testing.T) {
	o := filled(t)
	sign := strings.Replace(signText, "format 1", "format 2", 1)
	if err := os.WriteFile(filepath.Join(o.Dir, signName), []byte(sign+heldText), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, o, ErrNewer, "was written by a newer version of simba-resp")
}

func TestTooLittleFreeSpaceIsRefused(t *testing.T) {
	mem := vfs.NewMem()
	o := testOptions(t, mem, Always)
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 128<<20 - 1})
	wantRefusal(t, o, ErrNoSpace, "has too little free space: 127 MiB, it needs 128 MiB")
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 128 << 20})
	openClosed(t, o)
}

// rewrite changes the rows of a closed store directly in Pebble.
func rewrite(t *testing.T, o Options, change func(*pebble.DB) error) {
	t.Helper()
	db, err := pebble.Open(o.Dir, &pebble.Options{Logger: pebbleLogger{Logger: o.Logger}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(change(db), db.Flush(), db.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestANewerFormatIsRefused(t *testing.T) {
	o := filled(t)
	rewrite(t, o, func(db *pebble.DB) error { return db.Set([]byte(metaKey), []byte("\x02whatever"), nil) })
	wantRefusal(t, o, ErrNewer, "was written by a newer version of simba-resp (format 2; this one reads up to 1)")

	o = filled(t)
	marks, err := filepath.Glob(filepath.Join(o.Dir, "marker.format-version.*"))
	if err != nil || len(marks) != 1 {
		t.Fatalf("the search for the mark returns %v, %v", marks, err)
	}
	if err := os.Rename(marks[0], marks[0][:len(marks[0])-3]+"999"); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("was written by a newer version of simba-resp (store format 999; this one reads up to %d)", pebble.FormatNewest)
	wantRefusal(t, o, ErrNewer, want)
}

func TestACorruptStoreIsRefused(t *testing.T) {
	overwrite := func(pattern string) func(*testing.T, Options) {
		return func(t *testing.T, o Options) {
			rewrite(t, o, func(*pebble.DB) error { return nil }) // makes Pebble write tables
			names, err := filepath.Glob(filepath.Join(o.Dir, pattern))
			if err != nil || len(names) == 0 {
				t.Fatalf("the search for files returns %v, %v", names, err)
			}
			for _, name := range names {
				info, err := os.Stat(name)
				if err == nil {
					err = os.WriteFile(name, make([]byte, info.Size()), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	remove := func(pattern string) func(*testing.T, Options) {
		return func(t *testing.T, o Options) {
			overwrite(pattern)(t, o)
			names, _ := filepath.Glob(filepath.Join(o.Dir, pattern))
			for _, name := range names {
				if err := os.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	set := func(key, value string) func(*testing.T, Options) {
		return func(t *testing.T, o Options) {
			rewrite(t, o, func(db *pebble.DB) error { return db.Set([]byte(key), []byte(value), nil) })
		}
	}
	tests := map[string]func(*testing.T, Options){
		"garbage in the meta row": set(metaKey, "\x01garbage"),
		"garbage in the history":  set("h12345678", "\x01garbage"),
		"no meta row": func(t *testing.T, o Options) {
			rewrite(t, o, func(db *pebble.DB) error { return db.Delete([]byte(metaKey), nil) })
		},
		"zeros in the tables":   overwrite("*.sst"),
		"no tables":             remove("*.sst"),
		"zeros in the manifest": overwrite("MANIFEST-*"),
		"no manifest":           remove("MANIFEST-*"),
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			o := filled(t)
			spoil(t, o)
			wantRefusal(t, o, ErrCorrupt, "is corrupt: ")
		})
	}
}

func TestARefusedStoreLeavesNothingInMemory(t *testing.T) {
	o := filled(t)
	rewrite(t, o, func(db *pebble.DB) error { return db.Set([]byte("h12345678"), []byte("\x01garbage"), nil) })
	logger := func() weak.Pointer[slog.Logger] { // each open part of a store has the logger
		o := o
		o.Logger = slog.New(slog.DiscardHandler)
		wantRefusal(t, o, ErrCorrupt, "is corrupt: ")
		return weak.Make(o.Logger)
	}()
	for began := time.Now(); logger.Value() != nil; runtime.GC() {
		if time.Since(began) > need.Hang {
			t.Fatal("after a refused Open, the logger is still in use")
		}
	}
}

func segments(t *testing.T, o Options) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(o.Dir, journalName, "*.seg"))
	if err != nil || len(names) == 0 {
		t.Fatalf("the search for files returns %v, %v", names, err)
	}
	return names
}

func TestADamagedJournalIsRefusedByFileAndOffset(t *testing.T) {
	tests := map[string]struct {
		spoil func(segment string) error
		text  string
	}{
		"a flipped bit in a record": {func(segment string) error {
			b, err := os.ReadFile(segment)
			if err != nil {
				return err
			}
			b[4096+60] ^= 1
			return os.WriteFile(segment, b, 0o600)
		}, ".seg, offset 4096: record 1 "},
		"a segment of zeros": {func(segment string) error {
			return os.WriteFile(segment, make([]byte, 64<<10), 0o600)
		}, ".seg, offset 0: the header "},
		"a segment of another store": {func(segment string) error {
			b, err := os.ReadFile(segments(t, filled(t))[0])
			return errors.Join(err, os.WriteFile(segment, b, 0o600))
		}, ".seg, offset 0: the segment belongs to another store"},
		"no segment": {os.Remove, ".seg, offset 0: no segment is left"},
		"no journal": {func(segment string) error {
			return os.RemoveAll(filepath.Dir(segment))
		}, ".seg, offset 0: no segment is left"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := filled(t)
			if err := tt.spoil(segments(t, o)[0]); err != nil {
				t.Fatal(err)
			}
			wantRefusal(t, o, ErrCorrupt, "is corrupt: "+filepath.Join(o.Dir, journalName))
			wantRefusal(t, o, ErrCorrupt, tt.text)
		})
	}
}

func TestANewerJournalIsRefused(t *testing.T) {
	o := filled(t)
	segment := segments(t, o)[0]
	b, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	b[8]++ // the format
	binary.LittleEndian.PutUint64(b[4088:], xxhash.Sum64(b[:4088]))
	if err := os.WriteFile(segment, b, 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, o, ErrNewer, "was written by a newer version of simba-resp (journal: ")
}

func TestAStoreThatIsGoneIsNotMadeAnew(t *testing.T) {
	o := filled(t)
	files, err := os.ReadDir(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() != signName {
			if err := os.RemoveAll(filepath.Join(o.Dir, f.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantRefusal(t, o, ErrCorrupt, "is gone")
}

func TestASpoiltLeaseIsReportedByName(t *testing.T) {
	for value, want := range map[string]error{"garbage": ErrNewer, "\x01garbage": ErrCorrupt} {
		o := filled(t)
		rewrite(t, o, func(db *pebble.DB) error { return db.Set([]byte("ljob"), []byte(value), nil) })
		_, r := openClosed(t, o)
		var errs []error
		for _, err := range r.Leases {
			errs = append(errs, err)
		}
		if len(errs) != 1 || !errors.Is(errs[0], want) || !strings.Contains(errs[0].Error(), `"job"`) {
			t.Errorf("Leases yields the errors %v, want %v that names the mutex", errs, want)
		}
	}
}

// The test copies Pebble's files, lets the checkpoint advance once, and copies the journal.
func TestACopyOpensAlthoughTheCheckpointAdvancesMeanwhile(t *testing.T) {
	o := diskOptions(t)
	o.SegmentSize = 8 << 10
	s, _ := openClosed(t, o)
	var seq simba.Seq
	advance := func() {
		t.Helper()
		for before := s.checkpoints.taken.Load(); s.checkpoints.taken.Load() == before; {
			for s.checkpoints.behind() == 0 && s.checkpoints.taken.Load() == before {
				seq++
				s.Append(put(seq, fmt.Sprint("m", seq%10)))
				mustCommit(t, s, seq)
			}
			awaitCheckpoint(t, s)
		}
	}
	copied := o
	copied.Dir += ".copy"
	for range 5 {
		advance()
		began := seq
		for err := fs.ErrNotExist; errors.Is(err, fs.ErrNotExist); { // a compaction has removed a file
			if err := os.RemoveAll(copied.Dir); err != nil {
				t.Fatal(err)
			}
			if err = os.CopyFS(copied.Dir, os.DirFS(o.Dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		if err := os.RemoveAll(filepath.Join(copied.Dir, journalName)); err != nil {
			t.Fatal(err)
		}
		advance()
		if err := os.CopyFS(filepath.Join(copied.Dir, journalName), os.DirFS(filepath.Join(o.Dir, journalName))); err != nil {
			t.Fatal(err)
		}
		c, r := mustOpen(t, copied)
		if got := leasesOf(t, r); len(got) != 10 || r.Token < uint64(abs(began)) {
			t.Errorf("the copy has %d leases, token %d, want 10 and at least %d", len(got), r.Token, began)
		}
		mustClose(t, c)
	}
}

func TestAnEmptyDirectoryNameIsRefused(t *testing.T) {
	if _, _, err := Open(Options{}); err == nil {
		t.Error("Open without a directory succeeds")
	}
}

func TestTheMachinesBootIsTheDefault(t *testing.T) {
	o := diskOptions(t)
	o.Boot = Boot{}
	s, _ := mustOpen(t, o)
	first := s.committer.o.Now()
	ch := put(1, "m")
	ch.Lease.Acquired = first
	s.Append(ch)
	mustClose(t, s)
	s, r := openClosed(t, o)
	if got := leasesOf(t, r)["m"]; !reflect.DeepEqual(got, ch.Lease) {
		t.Errorf("recovered lease %+v, want %+v: the boot is the same", got, ch.Lease)
	}
	if now := s.committer.o.Now(); now < first || first <= simba.Instant(0) {
		t.Errorf("the recovered clock went back from %d to %d", first, now)
	}
}
