package persist

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/simba-resp/simba-resp"
)

type clock struct{ at atomic.Int64 }

func (c *clock) now() simba.Instant      { return simba.Instant(c.at.Load()) }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

// testOptions returns options of a store on fsys, in the first boot of a machine. Its clock stands
// still. The numbers of a new store begin above zero. A failure of the store fails the test.
func testOptions(t testing.TB, fsys vfs.FS, mode Mode) Options {
	t.Helper()
	return Options{
		Dir:    "data",
		FS:     fsys,
		Mode:   mode,
		Boot:   Boot{ID: "boot-1", Now: new(clock).now},
		Logger: slog.New(slog.DiscardHandler),
		// A test of background syncs sets a shorter time.
		SyncEvery: time.Hour,
		// Small segments fill soon.
		SegmentSize: 64 << 10,
		Wall:        func() time.Time { return firstFloor },
		Fatal:       func(err error) { t.Errorf("the store failed: %v", err) },
	}
}

func mustOpen(t testing.TB, o Options) (*Store, *Recovered) {
	t.Helper()
	s, r, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

func mustCommit(t testing.TB, s *Store, seq simba.Seq) {
	t.Helper()
	if err := s.Commit(abs(seq)); err != nil {
		t.Fatalf("Commit(%d): %v", seq, err)
	}
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func openClosed(t testing.TB, o Options) (*Store, *Recovered) {
	t.Helper()
	s, r := mustOpen(t, o)
	t.Cleanup(func() { mustClose(t, s) })
	return s, r
}

// zero is the floor of a new store with testOptions.
var zero = simba.Seq(firstFloor.UnixMicro())

// abs returns the number that a change has in the store, for one that a test counts from 1.
func abs(n simba.Seq) simba.Seq {
	if n < zero {
		return zero + n
	}
	return n
}

// put returns a change that grants the mutex, with the Seq as its token.
func put(seq simba.Seq, mutex string) simba.Change {
	seq = abs(seq)
	return simba.Change{
		Seq:  seq,
		Kind: simba.ChangePut,
		Lease: simba.Lease{
			Mutex: mutex, Owner: "owner", Token: uint64(seq),
			Acquired: 1000, AcquiredAt: 1_700_000_000_000,
			TTL: 10 * time.Second, Transition: 2 * time.Second,
		},
		Events: []simba.Event{{
			Seq: seq, At: 1_700_000_000_000 + int64(seq), Kind: simba.EventAcquired,
			Mutex: mutex, Owner: "owner", Token: uint64(seq),
		}},
	}
}

func del(seq simba.Seq, mutex string) simba.Change {
	seq = abs(seq)
	return simba.Change{Seq: seq, Kind: simba.ChangeDelete, Lease: simba.Lease{Mutex: mutex},
		Events: []simba.Event{{Seq: seq, At: 1, Kind: simba.EventReleased, Mutex: mutex, Owner: "owner", Reason: "done"}}}
}

// note returns a change that has only an event.
func note(seq simba.Seq) simba.Change {
	seq = abs(seq)
	return simba.Change{Seq: seq, Kind: simba.ChangeNone,
		Events: []simba.Event{{Seq: seq, At: 2, Kind: simba.EventQueued, Mutex: "m", Owner: "waiter"}}}
}

func leasesOf(t testing.TB, r *Recovered) map[string]simba.Lease {
	t.Helper()
	leases := map[string]simba.Lease{}
	for l, err := range r.Leases {
		if err != nil {
			t.Fatal(err)
		}
		leases[l.Mutex] = l
	}
	return leases
}

// A syncGate is a file system that counts the fsyncs of the journal, and can block them.
type syncGate struct {
	vfs.FS
	syncs   atomic.Int64
	arrived chan struct{} // gets a value for each blocked fsync

	mu   sync.Mutex
	gate chan struct{} // fsyncs wait until gate is closed
}

func newSyncGate(inner vfs.FS) *syncGate {
	g := &syncGate{arrived: make(chan struct{}, 100), gate: make(chan struct{})}
	close(g.gate)
	g.FS = wrapFS(inner, func(op errorfs.Op) error {
		if isJournalSync(op) {
			g.syncs.Add(1)
			g.pass()
		}
		return nil
	})
	return g
}

// wrapFS returns a file system that calls inject before each operation. If inject returns an error,
// the operation fails with that error. For an open file, inject gets the file's present path, also
// after a rename.
func wrapFS(inner vfs.FS, inject func(errorfs.Op) error) vfs.FS {
	var segments sync.Map // its keys are the former paths of spares that are segments now
	return errorfs.Wrap(inner, errorfs.InjectorFunc(func(op errorfs.Op) error {
		dir, spare, isSpare := strings.Cut(op.Path, "spare-")
		if !isSpare {
			return inject(op)
		}
		switch op.Kind {
		case errorfs.OpOpen:
			segments.Delete(op.Path)
		case errorfs.OpRename:
			err := inject(op)
			if err == nil {
				segments.Store(op.Path, nil)
			}
			return err
		}
		if _, ok := segments.Load(op.Path); ok {
			op.Path = dir + spare + ".seg"
		}
		return inject(op)
	}))
}

func isJournalSync(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		return isSegment(op)
	}
	return false
}

func isSegment(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".seg") }

func (g *syncGate) pass() {
	g.mu.Lock()
	gate := g.gate
	g.mu.Unlock()
	select {
	case <-gate:
	default:
		g.arrived <- struct{}{}
		<-gate
	}
}

// hold blocks fsyncs until release is called.
func (g *syncGate) hold() (release func()) {
	gate := make(chan struct{})
	g.mu.Lock()
	g.gate = gate
	g.mu.Unlock()
	return sync.OnceFunc(func() { close(gate) })
}

// commitAll calls Commit for each Seq on a goroutine of its own. errs gets the results.
func commitAll(s *Store, seqs ...simba.Seq) (errs <-chan error) {
	ch := make(chan error, len(seqs))
	for _, seq := range seqs {
		go func() { ch <- s.Commit(abs(seq)) }()
	}
	return ch
}

func wantOpen(t *testing.T, errs <-chan error) {
	t.Helper()
	select {
	case err := <-errs:
		t.Fatalf("Commit returned %v before the fsync", err)
	default:
	}
}

func TestCloseWritesUncommittedChanges(t *testing.T) {
	for _, mode := range []Mode{Always, Async} {
		fsys := vfs.NewCrashableMem()
		s, _ := mustOpen(t, testOptions(t, fsys, mode))
		s.Append(put(1, "m"))
		s.Append(note(2))
		mustClose(t, s)
		mustClose(t, s)
		s, r := mustOpen(t, testOptions(t, fsys.CrashClone(vfs.CrashCloneCfg{}), mode))
		if got := leasesOf(t, r); len(got) != 1 || len(r.History) != 2 {
			t.Errorf("%v: recovered leases %v and history %v, want one lease and two events", mode, got, r.History)
		}
		if r.Seq != abs(2) || r.Token != uint64(abs(1)) || r.Delay != 0 {
			t.Errorf("%v: Seq %d, Token %d, Delay %v, want the exact %d, %d, 0", mode, r.Seq, r.Token, r.Delay, abs(2), abs(1))
		}
		if got := s.Committed(); got != abs(2) {
			t.Errorf("%v: Committed = %d, want 2 of the earlier run", mode, got)
		}
		mustCommit(t, s, 2)
		mustClose(t, s)
	}
}

func TestChangesAfterCloseAreNeverCommitted(t *testing.T) {
	for _, mode := range []Mode{Always, Async} {
		gate := newSyncGate(vfs.NewMem())
		s, _ := mustOpen(t, testOptions(t, gate, mode))
		s.Append(put(1, "m"))
		mustCommit(t, s, 1)

		release := gate.hold()
		closed := make(chan error)
		go func() { closed <- s.Close() }()
		<-gate.arrived
		s.Append(note(2))
		if got := s.Committed(); got != abs(1) {
			t.Errorf("%v: Committed = %d while it closes, want 1", mode, got)
		}
		release()
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		s.Append(note(3))
		if got := s.Committed(); got != abs(1) {
			t.Errorf("%v: Committed = %d, want 1", mode, got)
		}
		if err := s.Commit(abs(1)); err != nil {
			t.Errorf("%v: Commit of a written change returns %v, want nil", mode, err)
		}
		for _, seq := range []simba.Seq{2, 3} {
			if err := s.Commit(abs(seq)); !errors.Is(err, simba.ErrStopped) {
				t.Errorf("%v: Commit(%d) = %v, want ErrStopped", mode, seq, err)
			}
		}
	}
}
