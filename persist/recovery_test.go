package persist

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/need"
)

func TestALeaseOfTheSameBootIsAsItWas(t *testing.T) {
	fsys := vfs.NewCrashableMem()
	s, _ := openClosed(t, testOptions(t, fsys, Always))
	kept, ended := put(1, "simba:{kept}"), put(2, "ended") // a name like that of a key
	ended.Lease.Acquired = -5
	s.Append(kept)
	s.Append(ended)
	s.Append(put(3, "gone"))
	s.Append(del(4, "gone"))
	mustCommit(t, s, 4)

	var c clock
	c.advance(time.Hour)
	o := testOptions(t, crash(fsys), Always)
	o.Now = c.now
	_, r := openClosed(t, o)
	want := map[string]simba.Lease{"simba:{kept}": kept.Lease, "ended": ended.Lease}
	if got := leasesOf(t, r); !reflect.DeepEqual(got, want) {
		t.Errorf("recovered leases %+v, want %+v", got, want)
	}
}

func TestAfterARebootLeasesBeginAnew(t *testing.T) {
	for _, id := range []string{"boot-2", ""} {
		fsys := vfs.NewCrashableMem()
		s, _ := openClosed(t, testOptions(t, fsys, Always))
		old := put(1, "m").Lease
		s.Append(put(1, "m"))
		mustCommit(t, s, 1)

		var c clock
		c.advance(7)
		o := testOptions(t, crash(fsys), Always)
		o.Boot = Boot{ID: id, Now: c.now}
		_, r := openClosed(t, o)
		got := leasesOf(t, r)["m"]
		if got.Acquired != 7 || got.AcquiredAt <= old.AcquiredAt {
			t.Errorf("boot %q: the lease was acquired at %d (%d ms), want at 7, the start", id, got.Acquired, got.AcquiredAt)
		}
		if got.TTL != old.TTL || got.Transition != old.Transition || got.Owner != old.Owner || got.Token != old.Token {
			t.Errorf("boot %q: lease %+v, want %+v with full windows", id, got, old)
		}
	}
}

func TestWithoutABootIDEveryStartIsAReboot(t *testing.T) {
	fsys := vfs.NewMem()
	var c clock
	o := testOptions(t, fsys, Always)
	o.Boot = Boot{Now: c.now, Unknown: errors.New("no /proc here")}
	var log strings.Builder
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s, _ := mustOpen(t, o)
	s.Append(put(1, "m"))
	mustClose(t, s)
	c.advance(7)
	_, r := openClosed(t, o)
	if got := leasesOf(t, r)["m"]; got.Acquired != 7 {
		t.Errorf("the recovered lease was acquired at %d, want at 7, the start", got.Acquired)
	}
	if got := log.String(); strings.Count(got, "the boot of the machine is unknown") != 2 || !strings.Contains(got, "no /proc here") {
		t.Errorf("the log says %s, want a warning of each start, with the reason", got)
	}
}

// If the clock is behind the stored instants, they come from another clock: for example, from a
// restored snapshot of the machine. The first start must begin leases anew. Later starts must not.
func TestAClockThatHasGoneBackIsThatOfAnotherBoot(t *testing.T) {
	fsys := vfs.NewCrashableMem()
	var c clock
	o := testOptions(t, fsys, Always)
	o.Boot.Now = c.now
	c.advance(time.Hour)
	s, _ := openClosed(t, o)
	grant := put(1, "m")
	grant.Lease.Acquired = c.now()
	s.Append(grant)
	mustCommit(t, s, 1)

	var back clock
	back.advance(time.Minute)
	began := back.now()
	var log strings.Builder
	for range 2 {
		fsys = crash(fsys)
		o = testOptions(t, fsys, Always)
		o.Boot.Now = back.now
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		_, r := openClosed(t, o)
		if got := leasesOf(t, r)["m"]; got.Acquired != began || got.TTL != grant.Lease.TTL {
			t.Errorf("the lease was acquired at %v for %v, want at %v, the first start, for %v", got.Acquired, got.TTL, began, grant.Lease.TTL)
		}
		back.advance(time.Second)
	}
	if got := strings.Count(log.String(), "lies behind"); got != 1 {
		t.Errorf("%d warnings about the clock, want one:\n%s", got, &log)
	}
}

// Two of the tokens have no tenure. The tenure of the third began and ended in the same change.
func TestACommittedTokenIsNotGivenOutAfterACrash(t *testing.T) {
	for _, mode := range []Mode{Always, Async} {
		fsys := vfs.NewCrashableMem()
		s, _ := openClosed(t, testOptions(t, fsys, mode))
		for i, token := range []uint64{uint64(abs(5)), uint64(abs(3 * tokenReserve)), uint64(abs(7 * tokenReserve))} {
			seq := abs(simba.Seq(i + 1))
			change := simba.Change{Seq: seq, Token: token}
			if i == 2 {
				change = del(seq, "m")
				change.Token = token
			}
			s.Append(change)
			mustCommit(t, s, seq)
			_, r := openClosed(t, testOptions(t, crash(fsys), mode))
			if r.Token < token {
				t.Errorf("mode %v: the next run grants tokens above %d, but %d was committed", mode, r.Token, token)
			}
		}
	}
}

// The first start after a reboot begins leases anew. A second start must not do so again. It must
// not take instants of the previous boot for instants of this boot either.
func TestOnlyTheFirstStartOfABootBeginsLeasesAnew(t *testing.T) {
	fsys := vfs.NewCrashableMem()
	s, _ := openClosed(t, testOptions(t, fsys, Always))
	s.Append(put(1, "old"))
	s.Append(put(2, "renewed"))
	mustCommit(t, s, 2)

	var c clock
	o := testOptions(t, crash(fsys), Always)
	o.Boot = Boot{ID: "boot-2", Now: c.now}
	for start := range 3 {
		c.advance(10)
		s, r := openClosed(t, o)
		got := leasesOf(t, r)
		if got["old"].Acquired != 10 {
			t.Errorf("start %d: the old boot's lease was acquired at %d, want 10, the first start", start, got["old"].Acquired)
		}
		if want := simba.Instant(10 * max(start, 1)); got["renewed"].Acquired != want {
			t.Errorf("start %d: the renewed lease was acquired at %d, want %d", start, got["renewed"].Acquired, want)
		}
		ch := put(r.Seq+1, "renewed")
		ch.Lease.Acquired = c.now()
		s.Append(ch)
		mustCommit(t, s, ch.Seq)
		o.FS = crash(o.FS.(*vfs.MemFS))
	}

	o.Boot = Boot{ID: "boot-3", Now: new(clock).now}
	_, r := openClosed(t, o)
	for mutex, l := range leasesOf(t, r) {
		if l.Acquired != 0 {
			t.Errorf("%s was acquired at %d after another reboot, want 0", mutex, l.Acquired)
		}
	}
}

func TestNoNumberComesTwiceThoughEveryMutexIsGone(t *testing.T) {
	for _, mode := range []Mode{Always, Async} {
		fsys := vfs.NewCrashableMem()
		s, _ := openClosed(t, testOptions(t, fsys, mode))
		s.Append(put(1, "m"))
		mustCommit(t, s, 1)
		grant := put(2, "m")
		grant.Lease.Token = uint64(abs(99))
		s.Append(grant)
		s.Append(del(3, "m"))
		s.Append(put(4, "older tenure"))
		s.Append(del(5, "older tenure"))
		mustCommit(t, s, 5)
		s.Append(note(6))
		committed := s.Committed()
		if committed != abs(6) {
			t.Fatalf("%v: Committed = %d, want 6", mode, committed)
		}
		_, r := openClosed(t, testOptions(t, crash(fsys), mode))
		if r.Token < uint64(abs(99)) || r.Seq < committed {
			t.Errorf("%v: Token %d, Seq %d, want at least 99 and %d", mode, r.Token, r.Seq, committed)
		}
		if mode == Always && r.Token != uint64(abs(99)) {
			t.Errorf("%v: Token %d, want no gap after 99", mode, r.Token)
		}
	}
}

func TestTheHistoryKeepsTheLastEventsInOrder(t *testing.T) {
	fsys := vfs.NewMem()
	o := testOptions(t, fsys, Always)
	o.HistoryLen = 50
	var want []simba.Event
	seq := simba.Seq(0)
	for run := range 4 {
		s, r := mustOpen(t, o)
		if got, want := r.History, want[max(0, len(want)-50):]; !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
			t.Fatalf("run %d: recovered %d events from %v, want %d", run, len(got), got[:1], len(want))
		}
		seq = r.Seq
		for i := range 70 {
			seq++
			ch := put(seq, fmt.Sprint("m", i))
			ch.Events[0].Reason = fmt.Sprint("reason ", seq)
			s.Append(ch)
			want = append(want, ch.Events...)
			if i%7 == run {
				mustCommit(t, s, seq)
			}
		}
		mustClose(t, s)
	}

	// A smaller limit also applies to stored rows.
	o.HistoryLen = 5
	for range 2 {
		s, r := mustOpen(t, o)
		if !reflect.DeepEqual(r.History, want[len(want)-5:]) {
			t.Errorf("Open recovered the events %v, want the last 5", r.History)
		}
		if err := s.checkpoints.checkpoint.write(); err != nil { // it deletes rows
			t.Fatal(err)
		}
		if n := countRows(t, s); n > 2 {
			t.Errorf("%d rows are stored for 5 events, want at most 2", n)
		}
		mustClose(t, s)
	}
}

func TestOldHistoryIsDeletedWhileTheStoreIsOpen(t *testing.T) {
	o := testOptions(t, vfs.NewMem(), Always)
	o.HistoryLen, o.SegmentSize = 10, 8<<10
	s, _ := openClosed(t, o)
	for seq := simba.Seq(1); seq <= 100; seq++ {
		s.Append(put(seq, "m"))
		mustCommit(t, s, seq)
	}
	awaitCheckpoint(t, s)
	if n := countRows(t, s); n != 10 {
		t.Errorf("the history has %d rows of one event each, want 10", n)
	}
}

// The last run may not have synced its newest checkpoint. Open releases the segments that this
// checkpoint covers. So Open must first make the checkpoint durable.
func TestAStartSyncsAManifestOfItsOwnBeforeItChangesTheJournal(t *testing.T) {
	var mu sync.Mutex
	var created, synced string
	o := testOptions(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		switch manifest := strings.HasPrefix(filepath.Base(op.Path), "MANIFEST-"); {
		case manifest && op.Kind == errorfs.OpCreate:
			created = op.Path
		case manifest && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData):
			synced = op.Path
		case strings.Contains(op.Path, journalName) && op.Kind.ReadOrWrite() == errorfs.OpIsWrite:
			if created == "" || synced != created {
				t.Errorf("the store did %v of %s when the last synced manifest was %q, want first a sync of the new manifest %q", op.Kind, op.Path, synced, created)
			}
		}
		return nil
	})), Always)
	o.SegmentSize = 8 << 10
	seq := simba.Seq(0)
	for range 3 {
		mu.Lock()
		created, synced = "", ""
		mu.Unlock()
		s, _ := mustOpen(t, o)
		for range 100 {
			seq++
			s.Append(put(seq, "m"))
			mustCommit(t, s, seq)
		}
		mustClose(t, s)
	}
}

// await waits until ok returns true.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(began) > need.Hang {
			t.Fatalf("this did not happen within %v: %s", need.Hang, what)
		}
	}
}

// awaitCheckpoint waits until the checkpoint has all full segments.
func awaitCheckpoint(t *testing.T, s *Store) {
	t.Helper()
	await(t, "the checkpoint has all full segments", func() bool { return s.checkpoints.behind() == 0 })
}

func countRows(t *testing.T, s *Store) (n int) {
	t.Helper()
	it, err := s.db.NewIter(prefix(historyPrefix))
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	return n
}

func TestReadingLeasesCanStopAndBeginAgain(t *testing.T) {
	o := testOptions(t, vfs.NewMem(), Always)
	s, _ := mustOpen(t, o)
	s.Append(put(1, "a"))
	s.Append(put(2, "b"))
	mustClose(t, s)
	s, _ = mustOpen(t, o)
	for range 2 {
		for l, err := range s.leases {
			if l.Mutex != "a" || err != nil {
				t.Errorf("Leases first yields %q, %v, want a", l.Mutex, err)
			}
			break
		}
	}
	mustClose(t, s) // fails if Leases left an iterator open
}

// While the machine sleeps, the engine's clock stands still, but the boot's clock does not. In the
// next run, the engine's clock begins at the boot's clock.
func TestASleepOfTheMachineShortensNoLaterLease(t *testing.T) {
	fsys := vfs.NewCrashableMem()
	var boot, engine clock
	o := testOptions(t, fsys, Always)
	o.Boot.Now, o.Now = boot.now, engine.now
	s, _ := mustOpen(t, o)
	boot.advance(time.Hour) // the machine sleeps
	ch := put(1, "m")
	ch.Lease.Acquired = engine.now()
	s.Append(ch)
	mustCommit(t, s, 1)
	mustClose(t, s)

	o = testOptions(t, fsys, Always)
	o.Boot.Now = boot.now
	_, r := openClosed(t, o)
	if got := leasesOf(t, r)["m"]; got.Acquired != boot.now() {
		t.Errorf("the lease was granted at %v of the boot's clock, but is stored with %v", boot.now(), got.Acquired)
	}
}
