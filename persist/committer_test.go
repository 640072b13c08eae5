package persist

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
)

func TestNothingIsCommittedBeforeItsFsync(t *testing.T) {
	gate := newSyncGate(vfs.NewMem())
	s, _ := openClosed(t, testOptions(t, gate, Always))
	release := gate.hold()
	defer release()

	s.Append(put(1, "m"))
	errs := commitAll(s, 1)
	<-gate.arrived
	s.Append(note(2))
	if got := s.Committed(); got != abs(0) {
		t.Errorf("Committed = %d during the fsync, want 0", got)
	}
	wantOpen(t, errs)

	release()
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
	if got := s.Committed(); got != abs(2) {
		t.Errorf("Committed = %d after the fsync, want 2", got)
	}
	s.Append(del(3, "m"))
	if got := s.Committed(); got != abs(2) {
		t.Errorf("Committed = %d before the fsync of a deletion, want 2", got)
	}
}

func TestAChangeOfTheHistoryAloneIsCommittedAtOnce(t *testing.T) {
	gate := newSyncGate(vfs.NewMem())
	s, _ := openClosed(t, testOptions(t, gate, Always))
	before := gate.syncs.Load()
	s.Append(note(1))
	mustCommit(t, s, 1)
	if got := s.Committed(); got != abs(1) {
		t.Errorf("Committed = %d, want 1", got)
	}
	if n := gate.syncs.Load() - before; n != 0 {
		t.Errorf("%d fsyncs, want none", n)
	}
}

func TestAPipelineSharesAnFsync(t *testing.T) {
	gate := newSyncGate(vfs.NewMem())
	s, _ := openClosed(t, testOptions(t, gate, Always))
	before := gate.syncs.Load()
	for seq := simba.Seq(1); seq <= 100; seq++ {
		s.Append(put(seq, fmt.Sprint("m", seq)))
	}
	mustCommit(t, s, 100)
	mustCommit(t, s, 50)
	if n := gate.syncs.Load() - before; n != 1 {
		t.Errorf("%d fsyncs, want 1", n)
	}
}

func TestClientsBehindAnFsyncShareTheNext(t *testing.T) {
	gate := newSyncGate(vfs.NewMem())
	s, _ := openClosed(t, testOptions(t, gate, Always))
	release := gate.hold()
	defer release()
	before := gate.syncs.Load()

	s.Append(put(1, "m1"))
	first := commitAll(s, 1)
	<-gate.arrived
	var seqs []simba.Seq
	for seq := simba.Seq(2); seq <= 65; seq++ {
		s.Append(put(seq, fmt.Sprint("m", seq)))
		seqs = append(seqs, seq)
	}
	rest := commitAll(s, seqs...)
	release()
	for _, errs := range []<-chan error{first, rest} {
		for range cap(errs) {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := gate.syncs.Load() - before; n != 2 {
		t.Errorf("%d fsyncs for 1 change and 64 behind it, want 2", n)
	}
	if got := s.Stats(); got.LargestCommit != 64 || got.Changes != 65 || got.Commits != 3 {
		t.Errorf("Stats = %+v, want 65 changes, 3 commits with that of Open, and 64 changes in the largest commit", got)
	}
}

func TestNumbersBeyondTheStoredFloorHold(t *testing.T) {
	s, _ := openClosed(t, testOptions(t, vfs.NewMem(), Always))
	s.Append(note(seqReserve))
	if got := s.Committed(); got != abs(seqReserve) {
		t.Errorf("Committed = %d at the floor, want %d", got, seqReserve)
	}
	s.Append(note(seqReserve + 1))
	if got := s.Committed(); got != abs(seqReserve) {
		t.Errorf("Committed = %d beyond the floor, want %d", got, seqReserve)
	}
	mustCommit(t, s, seqReserve+1)
	s.Append(note(seqReserve + 2))
	if got := s.Committed(); got != abs(seqReserve+2) {
		t.Errorf("Committed = %d with a new floor, want %d", got, seqReserve+2)
	}
}

func TestChangesNobodyCommitsDoNotPileUpWithoutLimit(t *testing.T) {
	s, _ := openClosed(t, testOptions(t, vfs.NewMem(), Always))
	long := strings.Repeat("r", simba.MaxReasonLen)
	var seq simba.Seq
	for s.Committed() == abs(seq) {
		if seq++; seq > 2*maxPending/simba.MaxReasonLen {
			t.Fatal("Committed covers all changes, but the store has written none")
		}
		ch := note(seq)
		ch.Events[0].Reason = long
		s.Append(ch)
	}
	mustCommit(t, s, seq)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.next.record); n > 1000 {
		t.Errorf("%d bytes wait after the commit, want at most 1000", n)
	}
}

// large returns a change that grants a mutex, with a lease of size bytes.
func large(seq simba.Seq, mutex string, size int) simba.Change {
	ch := put(seq, mutex)
	ch.Lease.Fields = []simba.Field{{Name: strings.Repeat("x", size), Value: "1"}}
	return ch
}

func TestARecordIsBoundedWhateverIsChangedDuringOneFsync(t *testing.T) {
	skipUnderRace(t)
	for _, mode := range []Mode{Always, Async} {
		gate := newSyncGate(vfs.NewMem())
		o := testOptions(t, gate.FS, mode)
		s, _ := openClosed(t, o)
		s.maxRecord = maxPending
		release := gate.hold()
		s.Append(put(1, "first"))
		first := commitAll(s, 1)
		<-gate.arrived

		const size = 64 << 10
		const last = 1 + 7*maxPending/size/2
		for seq := simba.Seq(2); seq <= last; seq += 3 {
			s.AppendAll([]simba.Change{
				large(seq, fmt.Sprint("m", seq), size),
				large(seq+1, fmt.Sprint("m", seq+1), size),
				large(seq+2, fmt.Sprint("m", seq+2), size),
			})
		}
		s.mu.Lock()
		ready, end := slices.Clone(s.ready), s.appended.seq
		for _, g := range append(ready, s.next) {
			if n := len(g.record); n > maxPending+4*size {
				t.Errorf("%v: a record of %d bytes waits, want at most %d and a transaction", mode, n, maxPending)
			}
			if (g.last-abs(1))%3 != 0 {
				t.Errorf("%v: a transaction is torn after change %d", mode, g.last)
			}
		}
		s.mu.Unlock()
		if len(ready) < 3 {
			release()
			t.Fatalf("%v: %d records wait, want 3 at least", mode, len(ready))
		}
		middle := ready[1].last
		if got := s.Committed(); got >= middle {
			t.Errorf("%v: Committed = %d, but change %d is not durable", mode, got, middle)
		}
		wantOpen(t, first)
		release()
		mustCommit(t, s, middle)
		mustCommit(t, s, end)
		if s.journal.Durable() < 5 {
			t.Errorf("%v: %d records are durable, want one for each group", mode, s.journal.Durable())
		}
		mustClose(t, s)
		s, r := openClosed(t, o)
		if got := len(leasesOf(t, r)); got != int(end-zero) {
			t.Errorf("%v: %d leases after a restart, want %d", mode, got, end)
		}
		mustClose(t, s)
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	for _, mode := range []Mode{Always, Async} {
		s, _ := openClosed(t, testOptions(t, vfs.NewMem(), mode))
		seq, ch := zero, put(1, "mutex")
		appendOne := func() {
			seq++
			ch.Seq, ch.Events[0].Seq = seq, seq
			s.Append(ch)
		}
		if n := testing.AllocsPerRun(1000, appendOne); n != 0 {
			t.Errorf("%v: %v allocations, want 0", mode, n)
		}
	}
}
