package simulation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// unsynced returns a disk with one unsynced change of each kind: a file has grown, and others were
// created, removed, renamed and replaced.
func unsynced() *disk {
	mem := vfs.NewCrashableMem()
	put := func(name, data string) vfs.File {
		f := must(mem.Create(name, vfs.WriteCategoryUnspecified))
		must(f.Write([]byte(data)))
		must(0, f.Sync())
		return f
	}
	must(0, mem.MkdirAll("data", 0o755))
	grown := put("data/grown", "old")
	for _, name := range []string{"data/removed", "data/renamed", "data/replaced"} {
		must(0, put(name, "old "+name).Close())
	}
	syncDirs(mem, "/")
	must(grown.Write([]byte(strings.Repeat("new", 5000))))
	must(0, grown.Close())
	must(0, mem.Remove("data/removed"))
	must(0, mem.Rename("data/renamed", "data/to"))
	must(0, put("data/replaced", "new").Close())
	must(0, put("data/made", "new").Close())
	return newDisk(mem, time.Now(), 0)
}

func contents(mem *vfs.MemFS) map[string]string {
	all := map[string]string{}
	for _, name := range list(mem, "data") {
		data, _ := read(mem, "data/"+name)
		all[name] = string(data)
	}
	return all
}

// At 0% and 100% nothing is random, so vfs.MemFS.CrashClone gives the same result.
func TestACrashThatKeepsNothingOrAll(t *testing.T) {
	for _, percent := range []int{0, 100} {
		d := unsynced()
		want := contents(d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(1, 1))}))
		if got := contents(d.crash(percent, 1, 1)); !maps.Equal(got, want) {
			t.Errorf("a crash that keeps %d%% of the unsynced data leaves %.200q, want %.200q", percent, fmt.Sprint(got), fmt.Sprint(want))
		}
	}
}

func TestACrashKeepsWhatWasSyncedAndByChanceTheRest(t *testing.T) {
	seen := map[string]int{}
	const seeds = 200
	for seed := range uint64(seeds) {
		left := contents(unsynced().crash(50, seed, 1))
		if again := contents(unsynced().crash(50, seed, 1)); !maps.Equal(left, again) {
			t.Fatalf("seed %d: two crashes of equal disks leave different files", seed)
		}
		if !strings.HasPrefix(left["grown"], "old") || left["removed"] != "old data/removed" || left["renamed"] != "old data/renamed" {
			t.Fatalf("seed %d: synced data is lost; left is %.200q", seed, fmt.Sprint(left))
		}
		for name, data := range left {
			seen[name+" "+strings.Trim(strings.ReplaceAll(data, "\x00", ""), "enw")]++
		}
		seen[fmt.Sprintf("grown to %d blocks", (len(left["grown"])+4095)/4096)]++
	}
	for _, kind := range []string{"made ", "to old data/renamed", "replaced ", "replaced old data/replaced", "grown to 1 blocks", "grown to 4 blocks"} {
		if n := seen[kind]; n < seeds/50 || n > seeds*9/10 {
			t.Errorf("%d of %d crashes have the outcome %q, want 2%% to 90%%; all outcomes: %v", n, seeds, kind, seen)
		}
	}
}
