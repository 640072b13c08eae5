package persist

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
)

// logs returns the sizes of the files of Pebble's log.
func logs(t *testing.T, o Options) map[string]int64 {
	t.Helper()
	names, err := o.FS.List(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	sizes := make(map[string]int64)
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			info, err := o.FS.Stat(o.FS.PathJoin(o.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			sizes[name] = info.Size()
		}
	}
	return sizes
}

// TestASyncSeldomFindsALongerLog: a sync has the file's new length to write, too.
func TestASyncSeldomFindsALongerLog(t *testing.T) {
	o := testOptions(t, vfs.NewMem(), Always)
	s, _ := mustOpen(t, o)
	grown, before := 0, logs(t, o)
	const commits = 1000
	for seq := simba.Seq(1); seq <= commits; seq++ {
		s.Append(put(seq, "m"))
		mustCommit(t, s, seq)
		for name, size := range logs(t, o) {
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
	if last := r.History[len(r.History)-1].Seq; last != commits {
		t.Errorf("the last change is %d, not %d", last, commits)
	}
	mustClose(t, s)
}

// TestALogThatIsUsedAgainIsNotFilledAgain, up to where it ended; and what is written is what is read.
func TestALogThatIsUsedAgainIsNotFilledAgain(t *testing.T) {
	mem := vfs.NewMem()
	fsys := strictFS{FS: mem, fault: newFault(func(err error) { t.Error(err) })}
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
	if want := append([]byte("oldold"), zeros[:len(read("1.log"))-6]...); !bytes.Equal(read("1.log"), want) || len(want) < logAhead {
		t.Errorf("%d bytes, not oldold and zeros", len(want))
	}

	filled := int64(len(read("1.log")))
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
