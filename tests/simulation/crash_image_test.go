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

// crashImage makes the file system that a crash leaves. It has all synced data, and a random part
// of the rest.
//
// vfs.MemFS.CrashClone visits files in the order of a map, so its result differs between two runs
// of a seed. Here each file has its own random generator. Its seed depends on the file's name
// without digits, and on the number of younger files whose names differ only in digits. The digits
// do not count, because the order of Pebble's goroutines decides the numbers of the files.
type crashImage struct {
	synced *vfs.MemFS // synced names with their synced data
	named  *vfs.MemFS // all names with their synced data
	all    *vfs.MemFS // all names, and synced names of removed files, with all data
	left   *vfs.MemFS // the result

	percent    int // how much of the unsynced data survives
	seed, life uint64
}

// crash returns the files that survive a crash now, with a percentage of the unsynced data. Nobody
// may write meanwhile. Nobody may use the disk afterwards, since crash syncs its directories.
func (d *disk) crash(percent int, seed, life uint64) *vfs.MemFS {
	r := &crashImage{left: vfs.NewCrashableMem(), percent: percent, seed: seed, life: life}
	r.synced = d.mem.CrashClone(vfs.CrashCloneCfg{})
	r.all = d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))})
	syncDirs(d.mem, "/")
	r.named = d.mem.CrashClone(vfs.CrashCloneCfg{})
	r.keep("/")
	syncDirs(r.left, "/")
	return r.left
}

var digits = regexp.MustCompile("[0-9]+")

// keep copies the part of a directory that survives the crash.
func (r *crashImage) keep(dir string) {
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
		case !isNamed: // somebody removed the file
			data = old
		case wasSynced && !chosen && !bytes.Equal(data, old): // another file has the name now
			data, all = old, nil
		}
		const block = 4096
		for from := 0; from < len(all); from += block {
			if to := min(from+block, len(all)); rng.IntN(100) < r.percent {
				// lost blocks in between read as zeros
				data = append(data, make([]byte, max(0, to-len(data)))...)
				copy(data[from:], all[from:to])
			}
		}
		f := must(r.left.Create(path, vfs.WriteCategoryUnspecified))
		must(f.Write(data))
		must(0, f.Sync())
		must(0, f.Close())
	}
}

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

// read returns the content of a file, and whether the name exists.
func read(fs vfs.FS, path string) (data []byte, is bool) {
	info, err := fs.Stat(path)
	if err != nil || info.IsDir() {
		return nil, err == nil
	}
	f := must(fs.Open(path))
	defer f.Close()
	return must(io.ReadAll(f)), true
}

// must panics on an error. A file system in memory fails only if the test misuses it.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
