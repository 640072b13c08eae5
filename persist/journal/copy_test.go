package journal

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// copyWhileWriting copies the files of a journal one by one, as cp -a does. It lists the names
// first, and calls order to sort them. Before it copies each file, it calls between. It returns the
// copy, and the number of listed segments that were gone.
func copyWhileWriting(t *testing.T, j *Journal, order func(names []string), between func()) (disk *vfs.MemFS, gone int) {
	names, err := j.o.FS.List(j.o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	order(names)
	files := map[string][]byte{}
	for _, name := range names {
		between()
		if _, err := j.o.FS.Stat(j.o.path(name)); !errors.Is(err, fs.ErrNotExist) {
			files[name] = readFile(t, j.o.FS, j.o.path(name))
		} else if _, ok := parseSegment(name); ok {
			gone++
		}
	}
	return diskOf(t, files), gone
}

// The copy must have all records that were durable when the copy began, in any order of the files,
// and while the journal writes records. The journal releases no segment meanwhile.
func TestACopyOfARunningJournalHasAllThatWasDurable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	orders := map[string]func([]string){
		"by name":           func([]string) {},
		"by name, backward": slices.Reverse[[]string],
		"any": func(names []string) {
			rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		},
	}
	for name, order := range orders {
		for range 12 {
			o := testOptions(vfs.NewMem())
			j := mustOpen(t, o)
			written := 0
			write := func() {
				for range rng.IntN(150) {
					written++
					mustWrite(t, j, numbered(written, written)...)
				}
			}
			for range 5 {
				write()
			}
			began := written
			o.FS, _ = copyWhileWriting(t, j, order, write)
			mustClose(t, j)
			again := mustOpen(t, o)
			got := payloads(t, again, 0)
			if len(got) < began {
				t.Errorf("%s: the copy has %d records, want at least the %d durable ones", name, len(got), began)
			}
			wantPayloads(t, got, numbered(1, len(got)))
			mustClose(t, again)
		}
	}
}

// If segments are released during the copy, Open may refuse the copy. A copy that Open accepts must
// have no gap between records.
func TestACopyOfDifferentMomentsIsRefusedOrEndsEarlier(t *testing.T) {
	t.Run("the names are listed after a file was copied", func(t *testing.T) {
		o := testOptions(vfs.NewMem())
		j := mustOpen(t, o)
		mustWrite(t, j, "record 1")
		offset := j.offset
		early := contents(t, o.FS, o.Dir)[segmentName(1)]
		mustWrite(t, j, "record 2")
		mustRotate(t, j)
		mustWrite(t, j, "record 3")
		files := contents(t, o.FS, o.Dir)
		files[segmentName(1)] = early
		mustClose(t, j)
		o.FS = diskOf(t, files)
		wantDamage(t, o, segmentName(1), offset)
	})
	t.Run("a file is written while it is copied", func(t *testing.T) {
		o := testOptions(vfs.NewMem())
		j := mustOpen(t, o)
		mustWrite(t, j, "record 1")
		offset := j.offset
		early := contents(t, o.FS, o.Dir)[segmentName(1)]
		mustWrite(t, j, "record 2", "record 3", "record 4")
		files := contents(t, o.FS, o.Dir)
		copy(files[segmentName(1)][:offset+headSize], early)
		mustClose(t, j)
		o.FS = diskOf(t, files)
		wantDamage(t, o, segmentName(1), offset)
	})
	t.Run("segments are released", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(2, 2))
		refused, opened, whole := 0, 0, 0
		for range 40 {
			o := testOptions(vfs.NewMem())
			j := mustOpen(t, o)
			written := 0
			write := func() {
				for range rng.IntN(150) {
					written++
					mustWrite(t, j, numbered(written, written)...)
				}
			}
			for range 4 {
				write()
			}
			o.From = j.FullIndex() / 2 // as if the checkpoint was copied first
			began := written
			var gone int
			o.FS, gone = copyWhileWriting(t, j, func([]string) {}, func() {
				write()
				if rng.IntN(3) == 0 {
					if err := j.Release(j.FullIndex()); err != nil {
						t.Fatal(err)
					}
				}
			})
			mustClose(t, j)
			again, err := Open(o)
			var damage *DamageError
			if errors.As(err, &damage) && gone > 0 {
				refused++
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			opened++
			got := payloads(t, again, o.From)
			if gone == 0 {
				if whole++; len(got)+int(o.From) < began {
					t.Errorf("the copy has %d records, want at least the %d durable ones", len(got)+int(o.From), began)
				}
			}
			wantPayloads(t, got, numbered(int(o.From)+1, int(o.From)+len(got)))
			mustClose(t, again)
		}
		if refused == 0 || whole == 0 || opened == whole {
			t.Errorf("Open refused %d copies; it accepted %d with all listed segments and %d without some; want more than 0 of each",
				refused, whole, opened-whole)
		}
	})
}
