package persist

import (
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/simba-resp/simba-resp"
)

// earlierRows are the rows that a version of format 3 stores for three changes.
var earlierRows = map[string]string{
	// Seq 7, token 5, no recovery delay
	"m":                                 "\x03\x06boot-1\x01\x00\x00\x07\x05\x00\x00",
	"lm":                                "\x01\x01\x05\xc8\x01\x90\x03\x80\xc8\xaf\xa0\x25\x01\x01o",
	"ln":                                "\x02\x01\x04\xc8\x01\x90\x03\x80\xc8\xaf\xa0\x25\x00\x01o\x01\x01o\x011",
	"h\x00\x00\x00\x00\x00\x00\x00\x06": "\x01\x00\x0a\x01\x01n\x01o\x04\x00\x02\x02\x01\x01m\x01o\x05\x01r",
}

// earlier makes the directory of a version without a journal. Pebble's log has all rows, each
// synced. There are no tables.
func earlier(t *testing.T, o Options, rows map[string]string) {
	t.Helper()
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if err := errors.Join(signDir(o.FS, o.Dir), signStore(o.FS, o.Dir)); err != nil {
		t.Fatal(err)
	}
	db, err := pebble.Open(o.Dir, &pebble.Options{
		FS: o.FS, Logger: pebbleLogger{Logger: o.Logger}, FormatMajorVersion: pebble.FormatValueSeparation,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		if err := db.Set([]byte(key), []byte(rows[key]), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func wantEarlier(t *testing.T, r *Recovered) {
	t.Helper()
	leases := map[string]simba.Lease{
		"m": {Mutex: "m", Owner: "o", Token: 5, Acquired: 100, AcquiredAt: 200, StartedAt: 200, TTL: 10 * time.Second, Transition: 1},
		"n": {
			Mutex: "n", Owner: "o", Token: 4, Acquired: 100, AcquiredAt: 200, StartedAt: 200, TTL: 10 * time.Second,
			Fields: []simba.Field{{Name: "o", Value: "1"}},
		},
	}
	if got := leasesOf(t, r); !reflect.DeepEqual(got, leases) {
		t.Errorf("recovered leases %+v, want %+v", got, leases)
	}
	events := []simba.Event{
		{Seq: 6, At: 5, Kind: simba.EventAcquired, Mutex: "n", Owner: "o", Token: 4},
		{Seq: 7, At: 6, Kind: simba.EventAcquired, Mutex: "m", Owner: "o", Token: 5, Reason: "r"},
	}
	if !slices.Equal(r.History, events) {
		t.Errorf("recovered events %+v, want %+v", r.History, events)
	}
	if r.Seq < 7 || r.Token != 5 || r.Delay != 0 {
		t.Errorf("recovered Seq %d, token %d, delay %v, want 7, 5, 0", r.Seq, r.Token, r.Delay)
	}
}

func TestADirectoryWithoutAJournalIsUpgraded(t *testing.T) {
	o := diskOptions(t)
	earlier(t, o, earlierRows)
	s, r := mustOpen(t, o)
	wantEarlier(t, r)
	mustClose(t, s)
	s, r = mustOpen(t, o)
	wantEarlier(t, r)
	m, err := readMeta(s.db)
	if m.format != 4 || m.Index == 0 || err != nil {
		t.Errorf("the meta row is %+v, %v, want one of format 4 with the index of a record", m, err)
	}
	mustClose(t, s)
}

// In turn, the first start of the new version crashes before each of its operations.
func TestACrashAtAnyMomentOfAnUpgradeLosesNothing(t *testing.T) {
	disk := vfs.NewCrashableMem()
	o := testOptions(t, disk, Always)
	earlier(t, o, earlierRows)
	var mu sync.Mutex
	var crashed []*vfs.MemFS
	rng := rand.New(rand.NewPCG(1, 1))
	o.FS = errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			mu.Lock()
			defer mu.Unlock()
			half := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng})
			crashed = append(crashed, crash(disk), half)
		}
		return nil
	}))
	s, _ := mustOpen(t, o)
	mustClose(t, s)
	if len(crashed) < 2*40 {
		t.Errorf("an upgrade has only %d operations, want 40", len(crashed)/2)
	}
	for i, fsys := range crashed {
		o.FS = fsys
		s, r := mustOpen(t, o)
		wantEarlier(t, r)
		if mustClose(t, s); t.Failed() {
			t.Fatalf("the upgrade crashed before operation %d of %d", i/2, len(crashed)/2)
		}
	}
}

// Format 1 stored neither the offset of the boot's clock nor Latest.
func TestADirectoryOfFormat1OpensWithFullWindows(t *testing.T) {
	o := diskOptions(t)
	earlier(t, o, map[string]string{
		"m":  "\x01\x06boot-1\x01\x00\x00\x80\x80\x40\x01\x00",
		"lm": "\x01\x01\x01\xc8\x01\x90\x03\x80\xc8\xaf\xa0\x25\x01\x01o",
	})
	var c clock
	c.advance(time.Hour)
	o.Boot = Boot{ID: "boot-1 boottime 0 0", Now: c.now}
	_, r := openClosed(t, o)
	if got := leasesOf(t, r)["m"]; got.Acquired != c.now() {
		t.Errorf("the lease was acquired at %v, want at %v, the start", got.Acquired, c.now())
	}
}

// In format 2, the key simba:{m} was stored as a mutex with this whole name if SIMBA.* refused the
// name m. The key simba:{m}:fence was stored as a lock.
func TestADirectoryOfFormat2KeepsTheLocksOfKeysWithAnyName(t *testing.T) {
	o := diskOptions(t)
	rows := map[string]string{"m": "\x02\x06boot-1\x01\x00\x00\x08\x08\x00\x00"}
	for i, name := range []string{"simba:{a b}", "simba:{both}", "both", "simba:{m}:fence", "simba:{m}:token", "simba:{", "simba:{m}:tenure", "z"} {
		rows["l"+name] = "\x01\x01" + string(rune(1+i)) + "\xc8\x01\x90\x03\x80\xc8\xaf\xa0\x25\x01\x01o"
	}
	earlier(t, o, rows)
	for start := range 2 {
		s, r := mustOpen(t, o)
		tokens := map[string]uint64{}
		for name, l := range leasesOf(t, r) {
			tokens[name] = l.Token
		}
		want := map[string]uint64{"a b": 1, "both": 3, "simba:{": 6, "simba:{m}:tenure": 7, "z": 8}
		if !maps.Equal(tokens, want) {
			t.Errorf("start %d: tokens by mutex are %v, want %v", start, tokens, want)
		}
		mustClose(t, s)
	}
}
