package persist

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/need"
)

// copies are the members of a cluster without a network: the leader's records go to all.
type copies struct {
	t    *testing.T
	all  []*Replica
	term uint64
	next uint64
}

func openReplica(t *testing.T, fsys vfs.FS) *Replica {
	t.Helper()
	return mustOpenReplica(t, testOptions(t, fsys, Always))
}

func mustOpenReplica(t *testing.T, o Options) *Replica {
	t.Helper()
	r, err := OpenReplica(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func closeReplica(t *testing.T, r *Replica) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// record is an entry of one change.
func record(index, term uint64, ch simba.Change) Entry {
	return Entry{index, term, EntryRecord, recordOf(head{seq: ch.Seq, token: ch.Token}, ch)}
}

func (c *copies) add(kind EntryKind, data []byte) {
	c.t.Helper()
	c.next++
	for _, r := range c.all {
		if err := r.Append([]Entry{{Index: c.next, Term: c.term, Kind: kind, Data: bytes.Clone(data)}}); err != nil {
			c.t.Fatal(err)
		}
		r.Commit(c.next)
	}
}

func (c *copies) lead(r *Replica) (*Store, *Recovered) {
	c.t.Helper()
	c.term++
	c.add(EntryEmpty, nil)
	s, rec, err := r.Lead(LeadOptions{
		Now:     r.options.Boot.Now,
		Propose: func(record []byte) error { c.add(EntryRecord, record); return nil },
		Confirm: func() error { return nil },
		Format:  func() uint32 { return RecordFormat },
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return s, rec
}

func TestANewLeaderHasWhatTheLastOneCommitted(t *testing.T) {
	c := &copies{t: t}
	for range 3 {
		c.all = append(c.all, openReplica(t, vfs.NewMem()))
	}
	s, rec := c.lead(c.all[0])
	lease := simba.Lease{Mutex: "m", Owner: "o", Token: rec.Token + 1, Acquired: c.all[0].options.Boot.Now(), TTL: time.Minute}
	s.Append(simba.Change{Seq: rec.Seq + 1, Kind: simba.ChangePut, Lease: lease, Token: lease.Token})
	if err := s.Commit(rec.Seq + 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	_, rec = c.lead(c.all[1])
	if rec.Token != lease.Token || rec.Seq < s.Committed() {
		t.Errorf("the floors are %d and %d, want %d and at least %d", rec.Token, rec.Seq, lease.Token, s.Committed())
	}
	n := 0
	for l, err := range rec.Leases {
		if n++; err != nil || l.Owner != "o" {
			t.Errorf("the leader has %+v, %v", l, err)
		}
	}
	if n != 1 {
		t.Errorf("the leader has %d leases, want 1", n)
	}
	for _, r := range c.all {
		closeReplica(t, r)
	}
}

// leaseOn returns the only lease of a member, when it leads.
func (c *copies) leaseOn(r *Replica) simba.Lease {
	c.t.Helper()
	s, rec := c.lead(r)
	if err := s.Close(); err != nil {
		c.t.Error(err)
	}
	return leasesOf(c.t, rec)["m"]
}

func TestNoMemberHasAShorterLeaseThanTheLeaderGranted(t *testing.T) {
	clocks := make([]*clock, 3)
	members := make([]*Replica, 3)
	options := make([]Options, 3)
	for i := range members {
		options[i] = testOptions(t, vfs.NewMem(), Always)
		clocks[i] = new(clock)
		clocks[i].advance(time.Duration(i) * 1000 * time.Hour)
		options[i].Boot = Boot{ID: fmt.Sprint("machine-", i), Now: clocks[i].now}
		members[i] = mustOpenReplica(t, options[i])
		defer func() { closeReplica(t, members[i]) }()
	}
	pass := func(d time.Duration) {
		for _, c := range clocks {
			c.advance(d)
		}
	}
	c := &copies{t: t, all: members[:2]}
	pass(time.Hour)
	s, rec := c.lead(members[0])
	ch := put(rec.Seq+1, "m")
	ch.Lease.TTL, ch.Lease.Transition, ch.Lease.Acquired = time.Minute, 0, clocks[0].now()
	pass(10 * time.Second)
	s.Append(ch)
	mustCommit(t, s, ch.Seq)
	left := func(i int, want time.Duration) {
		t.Helper()
		if l := c.leaseOn(members[i]); l.End().Sub(clocks[i].now()) != want || l.Owner != "owner" {
			t.Errorf("member %d has %+v, which ends in %v, want %v", i, l, l.End().Sub(clocks[i].now()), want)
		}
	}
	pass(10 * time.Second)
	left(0, 40*time.Second)
	left(1, 40*time.Second)

	b, index, term, err := members[1].Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	pass(10 * time.Second)
	if err := members[2].ReceiveSnapshot(index, term, bytes.NewReader(readAll(t, b))); err != nil {
		t.Fatal(err)
	}
	if err := members[2].Install(index, term); err != nil {
		t.Fatal(err)
	}
	c.all = members
	pass(10 * time.Second)
	left(2, 50*time.Second)
	left(1, 20*time.Second)

	closeReplica(t, members[1])
	options[1].Boot.ID = "machine-1, booted again"
	members[1] = mustOpenReplica(t, options[1])
	members[1].Commit(c.next)
	pass(10 * time.Second)
	left(1, 50*time.Second)
}

func TestOnlyTheFirstLeaderDrawsTheFloor(t *testing.T) {
	c := &copies{t: t}
	for i := range 2 {
		o := testOptions(t, vfs.NewMem(), Always)
		o.Wall = func() time.Time { return firstFloor.Add(time.Duration(2-i) * time.Hour) }
		c.all = append(c.all, mustOpenReplica(t, o))
		defer closeReplica(t, c.all[i])
	}
	_, first := c.lead(c.all[1])
	if want := uint64(firstFloor.Add(time.Hour).UnixMicro()); first.Token != want || first.Seq != simba.Seq(want) {
		t.Errorf("the first leader begins with token %d and Seq %d, want %d", first.Token, first.Seq, want)
	}
	_, second := c.lead(c.all[0])
	if second.Token != first.Token || second.Seq != first.Seq+seqReserve {
		t.Errorf("the second leader begins with token %d and Seq %d, want %d and %d", second.Token, second.Seq, first.Token, first.Seq+seqReserve)
	}
}

// The test crashes before each operation of the first start in turn. The disk then has only the
// synced data, or all data by turns.
func TestAMemberAndASingleServerRefuseEachOthersDirectory(t *testing.T) {
	single := func(o Options) error {
		s, _, err := Open(o)
		if err == nil {
			err = s.Close()
		}
		return err
	}
	member := func(o Options) error {
		r, err := OpenReplica(o)
		if err != nil {
			return err
		}
		for range r.Entries() {
			t.Error("a new member has entries")
		}
		if r.Checkpoint() != 0 || r.checkpoints.checkpoint.meta.Token != 0 {
			t.Errorf("a new member begins with %+v", r.checkpoints.checkpoint.meta)
		}
		return r.Close()
	}
	for _, test := range []struct {
		first, other func(Options) error
		refusal      error
	}{{single, member, ErrSingle}, {member, single, ErrMember}} {
		// A start looks only at the names in a directory. So one crash for each set of names suffices.
		var mu sync.Mutex
		crashes := map[string]*vfs.MemFS{}
		disk := vfs.NewCrashableMem()
		fsys := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if !isWrite(op) {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			for _, kept := range []int{0, 100} {
				crashed := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rand.New(rand.NewPCG(1, 0))})
				names, _ := crashed.List("data") // fails before the directory is there
				slices.Sort(names)
				crashes[fmt.Sprintf("%q, %d%% of the rest", names, kept)] = crashed
			}
			return nil
		}))
		if err := test.first(testOptions(t, fsys, Always)); err != nil {
			t.Fatal(err)
		}
		const whole = "no"
		crashes[whole] = crash(disk)
		refused := 0
		for at, crashed := range crashes {
			switch err := test.other(testOptions(t, crashed, Always)); {
			case errors.Is(err, test.refusal):
				refused++
				if err := test.first(testOptions(t, crashed, Always)); err != nil {
					t.Errorf("crash with the files %s: the next start: %v", at, err)
				}
			case err != nil || at == whole:
				t.Errorf("crash with the files %s: %v, want no error or %v", at, err, test.refusal)
			}
		}
		if refused == 0 {
			t.Errorf("no start was refused with %v", test.refusal)
		}
	}
}

// proposing is a leader whose proposals wait, and then get a result.
func proposing(t *testing.T) (s *Store, seq simba.Seq, proposed chan []byte, result chan error, confirmed *atomic.Int64, confirm *error) {
	r := openReplica(t, vfs.NewMem())
	t.Cleanup(func() { closeReplica(t, r) })
	proposed, result = make(chan []byte, 1), make(chan error, 1)
	confirmed, confirm = new(atomic.Int64), new(error)
	result <- nil // for the floors
	s, rec, err := r.Lead(LeadOptions{
		Now:     r.options.Boot.Now,
		Propose: func(record []byte) error { proposed <- record; return <-result },
		Format:  func() uint32 { return RecordFormat },
		Confirm: func() error { confirmed.Add(1); return *confirm },
	})
	if err != nil {
		t.Fatal(err)
	}
	<-proposed
	return s, rec.Seq, proposed, result, confirmed, confirm
}

func TestCommitConfirmsUnlessItsWriteBeginsLater(t *testing.T) {
	synctest.Test(t, testConfirms)
}

func testConfirms(t *testing.T) {
	s, seq, proposed, result, confirmed, confirm := proposing(t)
	want := func(n int64, when string) {
		t.Helper()
		if got := confirmed.Load(); got != n {
			t.Errorf("%d confirmations after a commit %s, want %d", got, when, n)
		}
	}
	mustCommit(t, s, seq)
	want(1, "of nothing")

	s.Append(put(seq+1, "m"))
	errs := commitAll(s, seq+1)
	<-proposed
	shown := note(seq + 2)
	shown.Shown = true
	s.Append(shown)
	errs2 := commitAll(s, seq+1)
	synctest.Wait() // the second Commit joins the write that runs
	result <- nil
	for _, errs := range []<-chan error{errs, errs2} {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	want(2, "whose write began later, and one whose write had begun")
	if got := s.Committed(); got != seq+1 {
		t.Errorf("Committed = %d, want %d: a change with notices must be proposed", got, seq+1)
	}

	errs = commitAll(s, seq+2)
	<-proposed
	result <- nil
	if err := <-errs; err != nil {
		t.Error(err)
	}
	want(2, "whose write began later")

	*confirm = errBroken
	if err := s.Commit(seq + 2); !errors.Is(err, simba.ErrStopped) {
		t.Errorf("Commit = %v where Confirm fails, want ErrStopped", err)
	}
	mustClose(t, s)
}

// The members may lack an entry long after it was committed.
func TestProposeMayKeepTheRecord(t *testing.T) {
	s, seq, proposed, result, _, _ := proposing(t)
	var kept, copied [][]byte
	for i := range simba.Seq(3) {
		s.Append(put(seq+1+i, fmt.Sprint("m", i)))
		errs := commitAll(s, seq+1+i)
		p := <-proposed
		kept, copied = append(kept, p), append(copied, bytes.Clone(p))
		result <- nil
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if !slices.EqualFunc(kept, copied, bytes.Equal) {
		t.Error("a record has changed after Propose has returned")
	}
	mustClose(t, s)
}

func TestALeaderWhoseProposalFailsCommitsNothingMore(t *testing.T) {
	s, seq, proposed, result, _, _ := proposing(t)
	result <- errBroken // Options.Fatal would fail the test
	for range 2 {
		s.Append(put(seq+1, "m"))
		if err := s.Commit(seq + 1); !errors.Is(err, simba.ErrStopped) {
			t.Errorf("Commit = %v, want ErrStopped", err)
		}
		seq++
	}
	if len(proposed) != 1 {
		t.Errorf("%d proposals, want 1", len(proposed))
	}
	if s.Committed() >= seq {
		t.Error("a change that was not proposed is committed")
	}
	mustClose(t, s)
}

// If Append waited here, nothing could make the last entries final.
func TestAppendWaitsForNoEntriesThatAreNotFinal(t *testing.T) {
	o := testOptions(t, vfs.NewMem(), Always)
	o.SegmentSize = 8 << 10
	r := mustOpenReplica(t, o)
	defer closeReplica(t, r)
	add := func(e Entry) {
		t.Helper()
		if err := r.Append([]Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	add(record(1, 1, large(1, "m", 20_000)))
	add(Entry{Index: 2, Term: 1, Kind: EntryEmpty})
	if full := r.journal.FullIndex(); full != 0 {
		t.Fatalf("a segment has ended with entry %d, want both entries in the first one", full)
	}
	r.Commit(1) // the first segment is larger than the room, and its end is not final
	for i := range uint64(100) {
		add(record(3+i, 1, put(simba.Seq(3+i), "m")))
	}
	add(Entry{Index: 2, Term: 2, Kind: EntryEmpty})
	r.Commit(2) // now the first segment is final: it has no second entry
	for began := time.Now(); r.Checkpoint() == 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > need.Hang {
			t.Fatal("the checkpoint does not follow")
		}
	}
}

func TestAppendRefusesToReplaceFinalEntriesAndToLeaveAGap(t *testing.T) {
	for name, entries := range map[string][]Entry{
		"replaces a final entry": {{Index: 1, Term: 2, Kind: EntryEmpty}},
		"leaves a gap":           {{Index: 4, Term: 1, Kind: EntryEmpty}},
		"has a gap":              {{Index: 3, Term: 1, Kind: EntryEmpty}, {Index: 5, Term: 1, Kind: EntryEmpty}},
	} {
		o := testOptions(t, vfs.NewMem(), Always)
		fatal := failing(&o)
		r := mustOpenReplica(t, o)
		if err := r.Append([]Entry{{Index: 1, Term: 1, Kind: EntryEmpty}, {Index: 2, Term: 1, Kind: EntryEmpty}}); err != nil {
			t.Fatal(err)
		}
		r.Commit(1)
		if err := r.Append(entries); err == nil || len(fatal) != 1 {
			t.Errorf("Append %s: %v", name, err)
		}
		_ = r.Close()
		awaitUnlocked(t, o.FS)
	}
}

func TestAMemberLeadsWithTheFloorsOfItsSnapshot(t *testing.T) {
	o := testOptions(t, vfs.NewMem(), Always)
	later := o.Wall
	if later == nil {
		later = time.Now
	}
	o.Wall = func() time.Time { return later().Add(time.Hour) } // its own floor would be larger
	r, index := withSnapshot(t, o)
	defer closeReplica(t, r)
	if err := r.Install(index, 1); err != nil {
		t.Fatal(err)
	}
	c := &copies{t: t, all: []*Replica{r}, term: 1, next: index}
	if m := r.checkpoints.checkpoint.meta; m.Token == 0 || m.Seq == 0 {
		t.Errorf("after the snapshot the floors are %d and %d", m.Token, m.Seq)
	}
	floor := r.checkpoints.checkpoint.meta.Token
	if _, rec := c.lead(r); rec.Token != floor {
		t.Errorf("the leader begins with token %d, the snapshot has %d", rec.Token, floor)
	}
}

// withSnapshot returns a member that has received a snapshot of another one.
func withSnapshot(t *testing.T, o Options) (r *Replica, index uint64) {
	c := &copies{t: t, all: []*Replica{openReplica(t, vfs.NewMem())}}
	defer closeReplica(t, c.all[0])
	c.lead(c.all[0])
	b, index, term, err := c.all[0].Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	content := readAll(t, b)
	r = mustOpenReplica(t, o)
	for _, wrong := range []struct{ index, term uint64 }{{index + 1, term}, {index, term + 1}} {
		if err := r.ReceiveSnapshot(wrong.index, wrong.term, bytes.NewReader(content)); err == nil {
			t.Error("a snapshot of other entries is accepted")
		}
	}
	if err := r.ReceiveSnapshot(index, term, bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	return r, index
}

func TestADiskThatFailsOrHangsEndsTheMember(t *testing.T) {
	for name, do := range map[string]func(r *Replica, snapshot uint64) error{
		"append":  func(r *Replica, _ uint64) error { return r.Append([]Entry{{Index: 1, Term: 1, Kind: EntryEmpty}}) },
		"replace": func(r *Replica, _ uint64) error { return r.Append([]Entry{{Index: 1, Term: 2, Kind: EntryEmpty}}) },
		"MEMBER":  func(r *Replica, _ uint64) error { return r.SetMember([]byte("text")) },
		"install": func(r *Replica, snapshot uint64) error { return r.Install(snapshot, 1) },
	} {
		for _, hangs := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				disk := vfs.NewMem()
				fsys := newFaultyFS(disk)
				o := testOptions(t, fsys, Always)
				fatal := failing(&o)
				r, snapshot := withSnapshot(t, o)
				if name == "replace" {
					if err := r.Append([]Entry{{Index: 1, Term: 1, Kind: EntryEmpty}}); err != nil {
						t.Fatal(err)
					}
				}
				broken := make(chan struct{})
				fsys.fail(func(op errorfs.Op) error {
					if !isWrite(op) {
						return nil
					}
					if hangs {
						<-broken
					}
					return errBroken
				})
				result := make(chan error)
				go func() { result <- do(r, snapshot) }()
				if err := <-fatal; hangs && errors.Is(err, errBroken) || !hangs && !errors.Is(err, errBroken) {
					t.Errorf("%s: Fatal got %v", name, err)
				}
				if err := r.Close(); err == nil {
					t.Errorf("%s: Close returns no error", name)
				}
				close(broken)
				if err := <-result; err == nil {
					t.Errorf("%s: it returns no error", name)
				}
				if err := do(r, snapshot); err == nil {
					t.Errorf("%s: it returns no error after the failure", name)
				}
				synctest.Wait()
				awaitUnlocked(t, disk)
				if len(fatal) != 0 {
					t.Errorf("%s: Fatal was called twice", name)
				}
			})
		}
	}
}

func TestASnapshotThatIsReceivedHoldsUpNothing(t *testing.T) {
	fsys := vfs.NewMem()
	r, index := withSnapshot(t, testOptions(t, fsys, Always))
	in, out := io.Pipe()
	received := make(chan error)
	go func() { received <- r.ReceiveSnapshot(index+1, 1, in) }()
	if _, err := out.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	if err := r.SetMember([]byte("text")); err != nil {
		t.Error(err)
	}
	if err := r.Install(index, 1); err != nil {
		t.Error(err)
	}
	out.CloseWithError(errBroken)
	if err := <-received; !errors.Is(err, errBroken) {
		t.Errorf("ReceiveSnapshot = %v, want the error of the connection", err)
	}
	if err := r.ReceiveSnapshot(index+2, 1, iotest.ErrReader(errBroken)); !errors.Is(err, errBroken) {
		t.Errorf("ReceiveSnapshot = %v, want the error of the connection", err)
	}
	names, err := fsys.List("data")
	if err != nil || slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "snapshot-") }) {
		t.Errorf("the directory has %q, %v, want no snapshot", names, err)
	}

	b, _, _, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := r.Snapshot(); !errors.Is(err, ErrBackupRuns) {
		t.Errorf("a second Snapshot returns %v, want ErrBackupRuns", err)
	}
	closeReplica(t, r)
	if _, err := b.Next(); !errors.Is(err, simba.ErrStopped) {
		t.Errorf("Next after Close of the member returns %v, want ErrStopped", err)
	}
}
