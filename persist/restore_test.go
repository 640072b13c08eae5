package persist

import (
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/simba-resp/simba-resp"
)

// During a recovery delay, owners renew with their tokens. So Restore must keep the tokens.
func TestARestoredStoreKeepsTokensAndBeginsLeasesAnewAfterARecoveryDelay(t *testing.T) {
	before := uint64(time.Now().UnixMicro())
	done, r := restored(t, smallBackup(t), RestoreOptions{RecoveryDelay: time.Minute})
	if r.Delay != time.Minute {
		t.Errorf("the recovery delay is %v, want a minute", r.Delay)
	}
	if r.Token < before || done.Floor != r.Token || uint64(r.Seq) < before {
		t.Errorf("the floors are token %d (reported %d) and Seq %d, want more than the clock before restore, %d", r.Token, done.Floor, r.Seq, before)
	}
	want := put(2, "b").Lease
	want.Acquired = simba.Instant(time.Hour) // now
	got := leasesOf(t, r)["b"]
	want.AcquiredAt = got.AcquiredAt
	want.StartedAt = got.StartedAt
	if len(leasesOf(t, r)) != 1 || got.Token != want.Token || got.Acquired != want.Acquired || got.Owner != want.Owner ||
		got.TTL != want.TTL || got.Transition != want.Transition {
		t.Errorf("the lease is %+v, want %+v", got, want)
	}
	if len(r.History) != 3 || r.History[2].Kind != simba.EventReleased {
		t.Errorf("the history is %v, want 3 events, the last a release", r.History)
	}
}

// After the backup, the old server may have granted tokens up to the floor.
func TestARestoredStoreWithStoppedOwnersGivesEachLeaseANewToken(t *testing.T) {
	s, _ := openClosed(t, testOptions(t, vfs.NewMem(), Always))
	for i, mutex := range []string{"a", "b", "c"} {
		s.Append(put(simba.Seq(i+1), mutex))
	}
	before := uint64(time.Now().UnixMicro())
	done, r := restored(t, readAll(t, mustBackup(t, s)), RestoreOptions{OwnersStopped: true})
	if r.Delay != 0 {
		t.Errorf("the recovery delay is %v, want none", r.Delay)
	}
	tokens := map[uint64]bool{}
	for _, l := range leasesOf(t, r) {
		tokens[l.Token] = true
		if l.Token < before || l.Token > r.Token {
			t.Errorf("the token of %s is %d, want one above %d, the clock before restore, and up to the floor %d", l.Mutex, l.Token, before, r.Token)
		}
	}
	if len(tokens) != 3 || done.Floor != r.Token {
		t.Errorf("the leases have the tokens %v, want 3 different ones; the floor is %d, but Restore reported %d", tokens, r.Token, done.Floor)
	}
}

// Restore takes the floors from the clock, unless the backup has larger numbers.
func TestARestoredStoreCountsAboveTheBackupEvenIfThatIsAboveTheClock(t *testing.T) {
	s, _ := openClosed(t, testOptions(t, vfs.NewMem(), Always))
	ch := put(math.MaxInt64/2, "m")
	s.Append(ch)
	_, r := restored(t, readAll(t, mustBackup(t, s)), RestoreOptions{RecoveryDelay: time.Minute})
	if r.Token < ch.Lease.Token || r.Seq < ch.Seq {
		t.Errorf("the floors are token %d and Seq %d, want more than the backup's %d", r.Token, r.Seq, ch.Seq)
	}
}

func TestRestoreRefuses(t *testing.T) {
	content := smallBackup(t) // has a lease of 12 s
	tests := map[string]struct {
		change func(o *RestoreOptions)
		want   error
		text   string
	}{
		"neither RecoveryDelay nor OwnersStopped": {func(o *RestoreOptions) { o.RecoveryDelay = 0 }, nil, "either give a recovery delay"},
		"both RecoveryDelay and OwnersStopped":    {func(o *RestoreOptions) { o.OwnersStopped = true }, nil, "either give a recovery delay"},
		"a negative recovery delay":               {func(o *RestoreOptions) { o.RecoveryDelay = -1 }, nil, "above 0"},
		"a recovery delay that is too long":       {func(o *RestoreOptions) { o.RecoveryDelay = MaxRecoveryDelay + 1 }, nil, "at most 48h"},
		"a recovery delay shorter than a lease": {
			func(o *RestoreOptions) { o.RecoveryDelay = 12*time.Second - 1 }, ErrDelayShort, `mutex "b" has 12s`},
		"no directory": {func(o *RestoreOptions) { o.Dir = "" }, nil, "no data directory"},
		"no backup":    {func(o *RestoreOptions) { o.From = "nowhere" }, fs.ErrNotExist, "nowhere"},
		"a clock in the past": {
			func(o *RestoreOptions) { o.Wall = func() time.Time { return time.Unix(1000, 0) } }, ErrClock, "1970-01-01"},
		"a directory with a file": {
			func(o *RestoreOptions) { _ = o.FS.MkdirAll("data/x", 0o700) }, ErrNotEmpty, `it has "x"`},
		"a data directory": {
			func(o *RestoreOptions) {
				open := testOptions(t, o.FS, Always)
				s, _ := mustOpen(t, open)
				mustClose(t, s)
			}, ErrNotEmpty, "a data directory already"},
		"a full disk": {
			func(o *RestoreOptions) {
				o.FS.(*vfs.MemFS).TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 128 << 20})
			}, ErrNoSpace, "128 MiB"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewMem()
			writeBackup(t, fsys, content)
			o := RestoreOptions{FS: fsys, From: "backup", Dir: "data", RecoveryDelay: time.Minute}
			test.change(&o)
			_, err := Restore(t.Context(), o)
			if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Restore returns %v, want one line with %q; if not nil, the error must match %v", err, test.text, test.want)
			}
		})
	}
}

// The longest lease was released before the backup. After the backup, the old server may have
// granted such a lease again.
func TestRestoreKnowsTheLongestLeaseOfAnAsyncServer(t *testing.T) {
	fsys := vfs.NewMem()
	s, _ := openClosed(t, testOptions(t, vfs.NewMem(), Async))
	long := put(1, "long")
	long.Lease.TTL = 5 * time.Minute
	s.Append(long)
	s.Append(del(2, "long"))
	writeBackup(t, fsys, readAll(t, mustBackup(t, s)))
	_, err := Restore(t.Context(), RestoreOptions{FS: fsys, From: "backup", Dir: "data", RecoveryDelay: time.Minute})
	if !errors.Is(err, ErrDelayShort) || !strings.Contains(err.Error(), "granted a lease of 5m2s") {
		t.Errorf("Restore returns %v, want ErrDelayShort and the longest lease", err)
	}
}

func isWrite(op errorfs.Op) bool { return op.Kind.ReadOrWrite() == errorfs.OpIsWrite }

// The test crashes before each operation in turn. The disk then has only the synced data, or all
// data.
func TestACrashDuringRestoreLeavesNoStoreOrAWholeOne(t *testing.T) {
	content := smallBackup(t)
	whole := false
	for at := int64(1); !whole; at++ {
		for _, kept := range []int{0, 100} {
			disk := vfs.NewCrashableMem()
			writeBackup(t, disk, content)
			var crashed *vfs.MemFS
			var done atomic.Int64
			fsys := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if isWrite(op) && done.Add(1) == at {
					crashed = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rand.New(rand.NewPCG(uint64(at), 0))})
				}
				return nil
			}))
			if _, err := Restore(t.Context(), RestoreOptions{FS: fsys, From: "backup", Dir: "data", RecoveryDelay: time.Minute}); err != nil {
				t.Fatal(err)
			}
			if crashed == nil { // Restore has no operation with this number
				whole = true
				crashed = crash(disk)
			}
			names, _ := crashed.List("data")
			if len(names) == 0 {
				continue // no store is left; a server would create a new one
			}
			s, r, err := Open(testOptions(t, crashed, Always))
			if err != nil {
				if whole || !errors.Is(err, ErrForeign) {
					t.Fatalf("crash before operation %d: Open: %v", at, err)
				}
				continue
			}
			if r.Delay != time.Minute || len(leasesOf(t, r)) != 1 || len(r.History) != 3 {
				t.Errorf("crash before operation %d: Open found %+v, want a delay of a minute, 1 lease and 3 events", at, r)
			}
			mustClose(t, s)
		}
		if at > 10_000 {
			t.Fatal("Restore does not end")
		}
	}
}

func TestRestoreThatCannotWriteFailsAndLeavesNoStore(t *testing.T) {
	content := smallBackup(t)
	failed := 0
	for at := int64(1); ; at++ {
		disk := vfs.NewMem()
		writeBackup(t, disk, content)
		var done atomic.Int64
		fsys := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			removes := op.Kind == errorfs.OpRemove || op.Kind == errorfs.OpRemoveAll
			if isWrite(op) && !removes && op.Kind != errorfs.OpFilePreallocate && done.Add(1) >= at {
				return errBroken
			}
			return nil
		}))
		_, err := Restore(t.Context(), RestoreOptions{FS: fsys, From: "backup", Dir: "data", RecoveryDelay: time.Minute})
		if err == nil {
			break
		}
		failed++
		if !strings.Contains(err.Error(), "restore to data: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("operation %d fails, but the error is %v, want one line with the directory", at, err)
		}
		if names, _ := disk.List("data"); len(names) == 0 {
			continue
		}
		if _, _, err := Open(testOptions(t, disk, Always)); err == nil {
			t.Errorf("operation %d fails, but Open accepts the directory", at)
		}
	}
	if failed < 10 {
		t.Errorf("only %d operations failed, want at least 10", failed)
	}
}
