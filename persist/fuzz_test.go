package persist

import (
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
)

// FuzzOpenDamaged damages one file of a closed store, and opens the store. Open must return an
// error of one line, or find all leases. But Open may take damage at the end of the last segment
// for a torn write. Then it must find the leases after one of the commits.
func FuzzOpenDamaged(f *testing.F) {
	files, states := damageable(f)
	names := slices.Sorted(maps.Keys(files))
	segments := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasSuffix(name, ".seg") })
	last := segments[len(segments)-1]
	for i := range names {
		f.Add(uint8(i), uint32(0), []byte{0}, false)
		f.Add(uint8(i), uint32(40), []byte("garbage"), false)
		f.Add(uint8(i), uint32(7), []byte(nil), true)
		f.Add(uint8(i), uint32(len(files[names[i]])-1), []byte{0xff}, false)
		f.Add(uint8(i), uint32(len(files[names[i]])), []byte("more"), false)
	}
	f.Fuzz(func(t *testing.T, which uint8, at uint32, junk []byte, cut bool) {
		fsys := vfs.NewMem()
		o := testOptions(t, fsys, Always)
		o.Fatal = func(error) {} // the store may find damage in the background
		if err := fsys.MkdirAll(fsys.PathJoin(o.Dir, journalName), 0o700); err != nil {
			t.Fatal(err)
		}
		damaged := names[int(which)%len(names)]
		for name, content := range files {
			if name == damaged {
				content = damage(content, int(at), junk, cut)
			}
			writeFile(t, fsys, fsys.PathJoin(o.Dir, name), content)
		}
		s, r, err := Open(o)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: the error has several lines: %q", damaged, err)
			}
			return
		}
		defer s.Close()
		got := map[string]simba.Lease{}
		for l, err := range r.Leases {
			if err != nil {
				return // found the damage
			}
			got[l.Mutex] = l
			if l.Token > r.Token {
				t.Errorf("%s: token %d of %s may be given again, the floor is %d", damaged, l.Token, l.Mutex, r.Token)
			}
		}
		possible := states[len(states)-1:]
		if damaged == last && (cut || len(junk) > 1) {
			possible = states
		}
		if !slices.ContainsFunc(possible, func(s map[string]simba.Lease) bool { return reflect.DeepEqual(s, got) }) {
			t.Errorf("%s: the leases are %+v, want those after the last commit, or after an earlier one if the end may be torn", damaged, got)
		}
	})
}

// damageable makes a store with a checkpoint and a journal. It returns its files, and the leases
// after each of its commits.
func damageable(t testing.TB) (files map[string][]byte, states []map[string]simba.Lease) {
	fsys := vfs.NewMem()
	o := testOptions(t, fsys, Always)
	leases := map[string]simba.Lease{}
	states = append(states, maps.Clone(leases))
	o.SegmentSize = 8 << 10
	for range 3 { // each later start makes a checkpoint of earlier changes
		s, _ := mustOpen(t, o)
		for i := range 8 {
			seq := s.Committed() + 1
			change := put(seq, fmt.Sprint("m", i))
			if i == 5 {
				change = del(seq, "m2")
				delete(leases, "m2")
			} else {
				leases[change.Lease.Mutex] = change.Lease
			}
			s.Append(change)
			mustCommit(t, s, seq)
			states = append(states, maps.Clone(leases))
		}
		mustClose(t, s)
	}
	files = map[string][]byte{}
	for _, dir := range []string{"", journalName} {
		list, err := fsys.List(fsys.PathJoin(o.Dir, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range list {
			if name == journalName {
				continue
			}
			name = fsys.PathJoin(dir, name)
			file, err := fsys.Open(fsys.PathJoin(o.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(file)
			if err != nil {
				t.Fatal(err)
			}
			files[name] = content
			file.Close()
		}
	}
	return files, states
}

// damage overwrites content with junk from an offset on, or cuts it there.
func damage(content []byte, at int, junk []byte, cut bool) []byte {
	at = min(at, len(content))
	if cut {
		return content[:at]
	}
	tail := content[min(len(content), at+len(junk)):]
	return slices.Concat(content[:at], junk, tail)
}

func writeFile(t *testing.T, fsys vfs.FS, path string, content []byte) {
	t.Helper()
	file, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
