package persist

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
)

// openPrimed opens an Async store and commits a first change. This raises the floors on disk so far
// that later changes by put need no fsync.
func openPrimed(t *testing.T, o Options) *Store {
	t.Helper()
	s, _ := openClosed(t, o)
	s.Append(put(1, "first"))
	mustCommit(t, s, 1)
	return s
}

func TestAsyncChangesAreCommittedAtOnce(t *testing.T) {
	gate := newSyncGate(vfs.NewMem())
	s := openPrimed(t, testOptions(t, gate, Async))
	before := gate.syncs.Load()
	s.Append(put(2, "m"))
	s.Append(del(3, "m"))
	mustCommit(t, s, 3)
	if got := s.Committed(); got != abs(3) {
		t.Errorf("Committed = %d, want 3", got)
	}
	if n := gate.syncs.Load() - before; n != 0 {
		t.Errorf("%d fsyncs, want none", n)
	}
}

func TestAsyncSyncsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewCrashableMem()
		o := testOptions(t, fsys, Async)
		o.SyncEvery = 10 * time.Millisecond
		s, _ := mustOpen(t, o)
		s.Append(put(1, "first"))
		mustCommit(t, s, 1)
		s.Append(put(2, "m"))

		commits := s.Stats().Commits
		time.Sleep(9 * time.Millisecond)
		synctest.Wait()
		if n := s.Stats().Commits; n != commits {
			t.Errorf("%d commits before SyncEvery, want %d", n, commits)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		clone := fsys.CrashClone(vfs.CrashCloneCfg{})
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := s.Stats().Commits; n != commits+1 {
			t.Errorf("after a minute without changes the store has made %d commits, want %d", n, commits+1)
		}
		mustClose(t, s)

		s, r := mustOpen(t, testOptions(t, clone, Async))
		if got := leasesOf(t, r); len(got) != 2 {
			t.Errorf("recovered leases %v, want also the lease of the background fsync", got)
		}
		mustClose(t, s)
	})
}

// checkMustSync checks that the store does not commit the change before an fsync.
func checkMustSync(t *testing.T, s *Store, gate *syncGate, ch simba.Change) {
	t.Helper()
	s.Append(ch)
	s.Append(note(ch.Seq + 1))
	if got := s.Committed(); got != ch.Seq-1 {
		t.Errorf("Committed = %d, want %d", got, ch.Seq-1)
	}
	before := gate.syncs.Load()
	mustCommit(t, s, ch.Seq)
	if n := gate.syncs.Load() - before; n != 1 {
		t.Errorf("%d fsyncs, want 1", n)
	}
	if got := s.Committed(); got != ch.Seq+1 {
		t.Errorf("Committed = %d after the commit, want %d", got, ch.Seq+1)
	}
}

func TestAsyncForcedChangesWait(t *testing.T) {
	gate := newSyncGate(vfs.NewMem())
	s := openPrimed(t, testOptions(t, gate, Async))
	ch := del(2, "first")
	ch.Forced = true
	checkMustSync(t, s, gate, ch)
}

func TestAsyncTokensBeyondTheReserveWait(t *testing.T) {
	gate := newSyncGate(vfs.NewMem())
	s := openPrimed(t, testOptions(t, gate, Async))
	ch := put(2, "m")
	ch.Lease.Token = uint64(abs(1 + tokenReserve))
	s.Append(ch)
	if got := s.Committed(); got != abs(2) {
		t.Errorf("Committed = %d for the last token of the reserve, want 2", got)
	}
	ch = put(3, "m")
	ch.Lease.Token = uint64(abs(2 + tokenReserve))
	checkMustSync(t, s, gate, ch)
}

func TestAsyncLongerLeasesWait(t *testing.T) {
	gate := newSyncGate(vfs.NewMem())
	s := openPrimed(t, testOptions(t, gate, Async))
	ch := put(2, "m")
	ch.Lease.TTL, ch.Lease.Transition = ch.Lease.TTL-1, ch.Lease.Transition+1
	s.Append(ch)
	if got := s.Committed(); got != abs(2) {
		t.Errorf("Committed = %d for a lease as long as the longest, want 2", got)
	}
	ch = put(3, "m")
	ch.Lease.Transition++
	checkMustSync(t, s, gate, ch)
}

func TestTheFirstAsyncLeaseWaits(t *testing.T) {
	gate := newSyncGate(vfs.NewMem())
	s, _ := openClosed(t, testOptions(t, gate, Async))
	checkMustSync(t, s, gate, put(1, "m"))
}

// crash returns the file system without unsynced data, as after a loss of power.
func crash(fsys *vfs.MemFS) *vfs.MemFS { return fsys.CrashClone(vfs.CrashCloneCfg{}) }

func TestRecoveryDelayCoversTheLongestLeaseThatMayBeLost(t *testing.T) {
	fsys := vfs.NewCrashableMem()
	s := openPrimed(t, testOptions(t, fsys, Async))
	long := put(2, "long")
	long.Lease.TTL = time.Hour
	s.Append(long)
	mustCommit(t, s, 2)
	s.Append(del(3, "long"))
	s.Append(put(4, "short"))
	mustCommit(t, s, 4)
	for _, mode := range []Mode{Always, Async} {
		_, r := openClosed(t, testOptions(t, crash(fsys), mode))
		if want := time.Hour + 2*time.Second; r.Delay != want {
			t.Errorf("Delay = %v for a run in %v, want %v", r.Delay, mode, want)
		}
	}
}

// TestCloseWritesUncommittedChanges checks that there is none after a clean stop either.
func TestNoRecoveryDelayAfterACrashOfAlways(t *testing.T) {
	fsys := vfs.NewCrashableMem()
	s, _ := openClosed(t, testOptions(t, fsys, Always))
	s.Append(put(1, "m"))
	mustCommit(t, s, 1)
	if _, r := openClosed(t, testOptions(t, crash(fsys), Always)); r.Delay != 0 {
		t.Errorf("Delay = %v after a crash of Always, want 0", r.Delay)
	}
}

// crashedAsync returns the file system after a crash in Async. The next run has a recovery delay of
// 12 s.
func crashedAsync(t *testing.T) *vfs.MemFS {
	fsys := vfs.NewCrashableMem()
	openPrimed(t, testOptions(t, fsys, Async))
	return crash(fsys)
}

func TestACrashDuringTheRecoveryDelayBeginsItAnew(t *testing.T) {
	for _, mode := range []Mode{Always, Async} {
		fsys := crashedAsync(t)
		var c clock
		o := testOptions(t, fsys, mode)
		o.Now = c.now
		s, _ := openClosed(t, o)
		c.advance(11 * time.Second)
		s.Append(del(s.Committed()+1, "first"))
		mustCommit(t, s, s.Committed()+1)

		_, r := openClosed(t, testOptions(t, crash(fsys), mode))
		if r.Delay != 12*time.Second {
			t.Errorf("%v: Delay = %v after a crash at 11 s of 12 s, want 12s", mode, r.Delay)
		}
	}
}

// During the recovery delay, an owner renews with a longer lease than any before. Then the delay
// after the next crash must be longer, too.
func TestALongerLeaseDuringTheRecoveryDelayMakesTheNextOneLonger(t *testing.T) {
	fsys := crashedAsync(t)
	s, r := openClosed(t, testOptions(t, fsys, Async))
	ch := put(r.Seq+1, "first")
	ch.Lease.Token, ch.Lease.TTL = uint64(abs(1)), time.Hour
	s.Append(ch)
	mustCommit(t, s, ch.Seq)
	if _, r := openClosed(t, testOptions(t, crash(fsys), Async)); r.Delay < time.Hour {
		t.Errorf("Delay = %v after a lease of an hour, want an hour at least", r.Delay)
	}
}

func TestACleanStopDuringTheRecoveryDelayKeepsTheRest(t *testing.T) {
	for _, mode := range []Mode{Always, Async} {
		fsys := crashedAsync(t)
		var c clock
		o := testOptions(t, fsys, mode)
		o.Now = c.now
		s, _ := mustOpen(t, o)
		c.advance(11 * time.Second)
		mustClose(t, s)

		_, r := openClosed(t, testOptions(t, crash(fsys), mode))
		if r.Delay != time.Second {
			t.Errorf("%v: Delay = %v after a stop at 11 s of 12 s, want 1s", mode, r.Delay)
		}
	}
}

func TestTheRecoveryDelayEnds(t *testing.T) {
	fsys := crashedAsync(t)
	var c clock
	o := testOptions(t, fsys, Always)
	o.Now = c.now
	s, r := openClosed(t, o)
	c.advance(r.Delay)
	s.Append(del(r.Seq+1, "first"))
	mustCommit(t, s, r.Seq+1)
	if _, r := openClosed(t, testOptions(t, crash(fsys), Always)); r.Delay != 0 {
		t.Errorf("Delay = %v after a crash beyond the recovery delay, want 0", r.Delay)
	}
}
