package simulation

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// remains is what a crash leaves of a file system: all that was synced, and of the rest what chance decides,
// as vfs.MemFS.CrashClone has it. That asks chance in the order of a map; here each file has a chance of its own, so
// that a seed leaves the same whenever it is run. A file is known by its name without numbers, and by how many younger ones have
// the same: which number it gets, and when an old one is removed, is decided by whichever of Pebble's goroutines comes first.
type remains struct {
	synced *vfs.MemFS // the names that were synced, with the data that was
	named  *vfs.MemFS // the names that there were, with the data that was synced
	all    *vfs.MemFS // either names, with all data
	left   *vfs.MemFS

	percent    int // of what was not synced is left
	seed, life uint64
}

// crash is what a crash now leaves, with so many percent of what was not synced. Nobody may write meanwhile, nor use the
// disk afterwards: its directories are synced.
func (d *disk) crash(percent int, seed, life uint64) *vfs.MemFS {
	r := &remains{left: vfs.NewCrashableMem(), percent: percent, seed: seed, life: life}
	r.synced = d.mem.CrashClone(vfs.CrashCloneCfg{})
	r.all = d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))})
	syncDirs(d.mem, "/")
	r.named = d.mem.CrashClone(vfs.CrashCloneCfg{})
	r.keep("/")
	syncDirs(r.left, "/")
	return r.left
}

var digits = regexp.MustCompile("[0-9]+")

// keep leaves what it should of a directory.
func (r *remains) keep(dir string) {
	younger := map[string]int{}
	for _, name := range slices.Backward(list(r.all, dir)) {
		path := r.all.PathJoin(dir, name)
		kind := digits.ReplaceAllString(path, "")
		rng := rand.New(rand.NewPCG(r.seed, r.life^fixedHash(fmt.Sprint(kind, younger[kind]))))
		younger[kind]++
		chosen := rng.IntN(100) < r.percent
		old, wasSynced := read(r.synced, path)
		data, isNamed := read(r.named, path)
		if !wasSynced && !chosen {
			continue
		}
		if isDir(r.all, path) {
			must(0, r.left.MkdirAll(path, 0o755))
			r.keep(path)
			continue
		}
		all, _ := read(r.all, path)
		switch {
		case !isNamed: // it was removed
			data = old
		case wasSynced && !chosen && !bytes.Equal(data, old): // another has its name now
			data, all = old, nil
		}
		const block = 4096
		for from := 0; from < len(all); from += block {
			if to := min(from+block, len(all)); rng.IntN(100) < r.percent {
				data = append(data, make([]byte, max(0, to-len(data)))...) // what is missing before it is zero
				copy(data[from:], all[from:to])
			}
		}
		f := must(r.left.Create(path, vfs.WriteCategoryUnspecified))
		must(f.Write(data))
		must(0, f.Sync())
		must(0, f.Close())
	}
}

// syncDirs syncs a directory and all below it.
func syncDirs(fs vfs.FS, dir string) {
	for _, name := range list(fs, dir) {
		if path := fs.PathJoin(dir, name); isDir(fs, path) {
			syncDirs(fs, path)
		}
	}
	d := must(fs.OpenDir(dir))
	must(0, d.Sync())
	must(0, d.Close())
}

func list(fs vfs.FS, dir string) []string {
	names := must(fs.List(dir))
	slices.Sort(names)
	return names
}

func isDir(fs vfs.FS, path string) bool { return must(fs.Stat(path)).IsDir() }

// read returns what is in a file, and reports whether the name is there.
func read(fs vfs.FS, path string) (data []byte, is bool) {
	info, err := fs.Stat(path)
	if err != nil || info.IsDir() {
		return nil, err == nil
	}
	f := must(fs.Open(path))
	defer f.Close()
	return must(io.ReadAll(f)), true
}

// must is for a file system in memory, which fails only if it is misused.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
