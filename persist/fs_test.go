package persist

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
)

// logSizes returns the lengths of the files of Pebble's log.
func logSizes(t *testing.T, o Options) map[string]int64 {
	t.Helper()
	names, err := o.FS.List(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	sizes := make(map[string]int64)
	for _, name := range names {
		if !strings.HasSuffix(name, ".log") {
			continue
		}
		info, err := o.FS.Stat(o.FS.PathJoin(o.Dir, name))
		switch {
		case err == nil:
			sizes[name] = info.Size()
		case !errors.Is(err, fs.ErrNotExist): // one that Pebble no longer needs
			t.Fatal(err)
		}
	}
	return sizes
}

// TestASyncSeldomFindsALongerLog: a sync has the file's new length to write, too.
func TestASyncSeldomFindsALongerLog(t *testing.T) {
	o := testOptions(t, vfs.NewMem(), Always)
	s, _ := mustOpen(t, o)
	grown, before := 0, logSizes(t, o)
	const commits = 1000
	for seq := simba.Seq(1); seq <= commits; seq++ {
		s.Append(put(seq, "m"))
		mustCommit(t, s, seq)
		for name, size := range logSizes(t, o) {
			if size != before[name] {
				grown++
			}
			before[name] = size
		}
	}
	if grown > commits/100 {
		t.Errorf("%d of %d commits made the log longer", grown, commits)
	}
	mustClose(t, s)
	s, r := mustOpen(t, o)
	if n := len(r.History); n == 0 || r.History[n-1].Seq != commits {
		t.Errorf("%d changes are left, the last of which is not %d", n, commits)
	}
	mustClose(t, s)
}

// TestALogThatIsUsedAgainIsNotFilledAgain, up to where it ended; and what is written is what is read.
func TestALogThatIsUsedAgainIsNotFilledAgain(t *testing.T) {
	mem := vfs.NewMem()
	fsys := strictFS{FS: mem, fault: newFault(func(err error) { t.Error(err) }), log: new(atomic.Pointer[string])}
	write := func(f vfs.File, err error, text string, times int) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for range times {
			if _, err := f.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) []byte {
		t.Helper()
		f, err := mem.Open(name)
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

	f, err := fsys.Create("1.log", logCategory)
	write(f, err, "old", 2)
	first := read("1.log")
	if !bytes.HasPrefix(first, []byte("oldold\x00")) || len(first) < logAhead || bytes.Count(first, []byte{0}) != len(first)-6 {
		t.Errorf("%d bytes, not oldold and zeros", len(first))
	}

	filled := int64(len(first))
	f, err = fsys.ReuseForWrite("1.log", "2.log", logCategory)
	write(f, err, "n", int(filled))
	if b := read("2.log"); int64(len(b)) != filled || bytes.Count(b, []byte("n")) != int(filled) {
		t.Errorf("%d bytes in place of %d", len(b), filled)
	}
	f, err = fsys.ReuseForWrite("2.log", "3.log", logCategory)
	write(f, err, "x", int(filled)+1)
	if b := read("3.log"); int64(len(b)) != filled+1+logAhead || b[filled] != 'x' || b[filled+1] != 0 {
		t.Errorf("%d bytes after one beyond %d", len(b), filled)
	}

	f, err = fsys.Create("4.sst", "pebble-memtable-flush")
	write(f, err, "table", 1)
	if b := read("4.sst"); string(b) != "table" {
		t.Errorf("another file has %d bytes", len(b))
	}
}
