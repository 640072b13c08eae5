package persist

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/need"
)

// A faultyFS is a file system on which operations can fail. After a call of fail, each operation
// for which pick returns an error fails with that error.
type faultyFS struct {
	vfs.FS
	pick atomic.Pointer[func(errorfs.Op) error]
}

func newFaultyFS(inner vfs.FS) *faultyFS {
	f := new(faultyFS)
	f.FS = wrapFS(inner, func(op errorfs.Op) error {
		if pick := f.pick.Load(); pick != nil {
			return (*pick)(op)
		}
		return nil
	})
	return f
}

func (f *faultyFS) fail(pick func(errorfs.Op) error) { f.pick.Store(&pick) }

// failing sets o.Fatal to a function that sends its error to the returned channel.
func failing(o *Options) (fatal <-chan error) {
	ch := make(chan error, 10)
	o.Fatal = func(err error) { ch <- err }
	return ch
}

var errBroken = errors.New("broken disk")

func TestTheFirstFailureIsFatalOnceAndAllThatIsCommittedIsOnDisk(t *testing.T) {
	isSpare := func(op errorfs.Op) bool { return strings.Contains(op.Path, "spare-") }
	tests := []struct {
		name string
		fail func(errorfs.Op) error
	}{
		{"write of a record", func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileWriteAt && isSegment(op) {
				return errBroken
			}
			return nil
		}},
		{"fsync of a record", func(op errorfs.Op) error {
			if isJournalSync(op) {
				return errBroken
			}
			return nil
		}},
		{"filling a segment", func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileWriteAt && isSpare(op) {
				return errBroken
			}
			return nil
		}},
		{"naming a segment", func(op errorfs.Op) error {
			if op.Kind == errorfs.OpRename && isSpare(op) {
				return errBroken
			}
			return nil
		}},
		{"fsync of the journal's directory", func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSync && strings.HasSuffix(op.Path, journalName) {
				return errBroken
			}
			return nil
		}},
		{"release of a segment", func(op errorfs.Op) error {
			if (op.Kind == errorfs.OpRename || op.Kind == errorfs.OpRemove) && isSegment(op) {
				return errBroken
			}
			return nil
		}},
		{"reading for the checkpoint", func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileReadAt && isSegment(op) {
				return errBroken
			}
			return nil
		}},
		{"write of the checkpoint", func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".sst") {
				return errBroken
			}
			return nil
		}},
		{"fsync of the manifest", func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSync && strings.Contains(op.Path, "MANIFEST") {
				return errBroken
			}
			return nil
		}},
		{"a full disk", func(op errorfs.Op) error {
			switch op.Kind {
			case errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpCreate:
				return fmt.Errorf("%w: %w", errBroken, syscall.ENOSPC)
			}
			return nil
		}},
		{"a file system that becomes read-only", func(op errorfs.Op) error {
			switch op.Kind {
			case errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpCreate, errorfs.OpRename, errorfs.OpRemove:
				return fmt.Errorf("%w: %w", errBroken, syscall.EROFS)
			}
			return nil
		}},
	}
	for _, mode := range []Mode{Always, Async} {
		for _, tt := range tests {
			t.Run(mode.String()+"/"+tt.name, func(t *testing.T) {
				mem := vfs.NewCrashableMem()
				fsys := newFaultyFS(mem)
				o := testOptions(t, fsys, mode)
				fatal := failing(&o)
				s, _ := mustOpen(t, o)
				s.Append(put(1, "m"))
				mustCommit(t, s, 1)

				fsys.fail(tt.fail)
				var seq simba.Seq = 1
				var err error
				for err == nil {
					s.Append(put(seq+1, "m"))
					s.Append(del(seq+2, "m"))
					ch := put(seq+3, "m")
					ch.Forced = true
					s.Append(ch)
					seq += 3
					errs := commitAll(s, seq-2, seq, seq, seq)
					for range cap(errs) {
						err = errors.Join(err, <-errs)
					}
				}
				if !errors.Is(err, simba.ErrStopped) {
					t.Errorf("Commit = %v, want ErrStopped", err)
				}
				if err := <-fatal; !errors.Is(err, errBroken) || strings.Contains(err.Error(), "\n") {
					t.Errorf("Fatal got %v, want one line with the error of the disk", err)
				}
				for _, seq := range []simba.Seq{1, seq, seq + 1} {
					if err := s.Commit(abs(seq)); !errors.Is(err, simba.ErrStopped) {
						t.Errorf("Commit(%d) after the failure = %v, want ErrStopped", seq, err)
					}
				}
				if err := s.Close(); !errors.Is(err, errBroken) {
					t.Errorf("Close = %v, want the error of the disk", err)
				}
				if n := len(fatal); n != 0 {
					t.Errorf("Fatal was called %d more times", n)
				}

				// The disk may have more changes than Committed says: their fsync may have ended
				// before the failure.
				committed := s.Committed() - zero
				must := committed
				if mode == Async {
					must = 1 + (committed-1)/3*3 // last forced change
				}
				awaitUnlocked(t, mem)
				for _, left := range []vfs.FS{crash(mem), mem} {
					s, r := mustOpen(t, testOptions(t, left, mode))
					if kept := r.History[len(r.History)-1].Seq - zero; kept < must {
						t.Errorf("changes up to %d are on disk, want at least up to %d", kept, must)
					}
					mustClose(t, s)
				}
			})
		}
	}
}

// awaitUnlocked waits until a failed store has closed its files.
func awaitUnlocked(t *testing.T, fsys vfs.FS) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		lock, err := lockDir(fsys, "data")
		if err == nil {
			err = lock.Close()
		}
		if err == nil {
			return
		}
		if time.Since(began) > need.Hang {
			t.Fatalf("after Close the directory is still locked: %v", err)
		}
	}
}

// The test runs its own binary as another process, which must end.
func TestByDefaultAFailureEndsTheProcessWithOneLine(t *testing.T) {
	const child = "SIMBA_TEST_FAILING_STORE"
	if os.Getenv(child) != "" {
		fsys := newFaultyFS(vfs.NewMem())
		o := testOptions(t, fsys, Always)
		o.Fatal, o.Logger = nil, nil
		s, _ := mustOpen(t, o)
		fsys.fail(func(errorfs.Op) error { return errBroken })
		s.Append(put(1, "m"))
		_ = s.Commit(abs(1))
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1")
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != ExitCode {
		t.Errorf("the process ended with %v, want code %d", err, ExitCode)
	}
	if text := string(output); strings.Count(text, "\n") != 1 || !strings.Contains(text, errBroken.Error()) {
		t.Errorf("the process wrote %q, want one line with the error of the disk", text)
	}
}

func TestACommitThatHangsIsFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newSyncGate(vfs.NewMem())
		o := testOptions(t, gate, Always)
		fatal := failing(&o)
		s, _ := mustOpen(t, o)
		time.Sleep(time.Hour) // the timeout begins with a commit
		release := gate.hold()
		start := time.Now()
		s.Append(put(1, "m"))
		errs := commitAll(s, 1, 1, 1)
		if err := <-fatal; !errors.Is(err, errCommitTimeout) {
			t.Errorf("Fatal got %v, want the timeout", err)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("the store failed after %v, want 10s", took)
		}
		for range cap(errs) {
			if err := <-errs; !errors.Is(err, simba.ErrStopped) {
				t.Errorf("Commit = %v, want ErrStopped", err)
			}
		}
		// After the timeout, a late end of the fsync changes nothing.
		release()
		synctest.Wait()
		if got := s.Committed(); got != abs(0) {
			t.Errorf("Committed = %d, want 0", got)
		}
		if err := s.Close(); !errors.Is(err, errCommitTimeout) {
			t.Errorf("Close = %v, want the timeout", err)
		}
		if n := len(fatal); n != 0 {
			t.Errorf("Fatal was called %d more times", n)
		}
	})
}

// A write after the failure could find the files closed.
func TestAStoreThatHasFailedBeginsNoWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(t, vfs.NewMem(), Always)
		failing(&o)
		s, _ := mustOpen(t, o)
		s.files.fault.trip(errBroken) // no write runs
		if err := s.Close(); !errors.Is(err, errBroken) {
			t.Errorf("Close = %v, want the error of the disk", err)
		}
		for range 2 {
			s.Append(put(1, "m"))
			if err := s.Commit(abs(1)); !errors.Is(err, simba.ErrStopped) {
				t.Errorf("Commit = %v, want ErrStopped", err)
			}
			s.mu.Lock()
			if s.writing {
				t.Error("the failed store has begun a write")
			}
			s.mu.Unlock()
			synctest.Wait() // when all goroutines are blocked, the files are closed
		}
		if s, _, err := Open(testOptions(t, o.FS, Always)); err != nil {
			t.Errorf("the directory is still locked: %v", err)
		} else {
			mustClose(t, s)
		}
	})
}

func TestFatalMayCloseTheStore(t *testing.T) {
	fsys := newFaultyFS(vfs.NewMem())
	o := testOptions(t, fsys, Always)
	var s *Store
	closed := make(chan error)
	o.Fatal = func(error) { closed <- s.Close() }
	s, _ = mustOpen(t, o)
	fsys.fail(func(op errorfs.Op) error {
		if isJournalSync(op) {
			return errBroken
		}
		return nil
	})
	s.Append(put(1, "m"))
	errs := commitAll(s, 1)
	if err := <-closed; !errors.Is(err, errBroken) {
		t.Errorf("Close = %v, want the error of the disk", err)
	}
	if err := <-errs; !errors.Is(err, simba.ErrStopped) {
		t.Errorf("Commit = %v, want ErrStopped", err)
	}
}

func TestOnlyTheFirstFailureIsFatalAndOnlyOnceOpen(t *testing.T) {
	var got []error
	f := newFault(func(err error) { got = append(got, err) })
	if err := f.arm(); err != nil {
		t.Fatal(err)
	}
	f.trip(errBroken)
	f.trip(errCommitTimeout)
	if len(got) != 1 || got[0] != errBroken || f.cause() != errBroken {
		t.Errorf("Fatal got %v and the cause is %v, want only %v for both", got, f.cause(), errBroken)
	}

	got = nil
	f = newFault(func(err error) { got = append(got, err) })
	f.trip(errBroken)
	if err := f.arm(); err != errBroken || got != nil {
		t.Errorf("after a failure, arm = %v and Fatal got %v, want %v and nothing", err, got, errBroken)
	}
}

func TestPebblesComplaintsAreFatal(t *testing.T) {
	complaints := map[string]func(l pebbleLogger, e *pebble.EventListener){
		"Fatalf":          func(l pebbleLogger, _ *pebble.EventListener) { l.Fatalf("it is %s", "broken") },
		"BackgroundError": func(_ pebbleLogger, e *pebble.EventListener) { e.BackgroundError(errBroken) },
	}
	for name, complain := range complaints {
		fatal := make(chan error, 1)
		f := newFault(func(err error) { fatal <- err })
		if err := f.arm(); err != nil {
			t.Fatal(err)
		}
		go func() {
			complain(pebbleLogger{fault: f}, f.listener())
			t.Errorf("%s returned to Pebble, want it to block", name)
		}()
		if err := <-fatal; !strings.Contains(err.Error(), "broken") {
			t.Errorf("%s: Fatal got %v, want the text of the complaint", name, err)
		}
	}
}

// In turn, each write of a start fails. Open must return the error. The next start must succeed on
// the files that are left.
func TestAStartThatFailsSpoilsNothing(t *testing.T) {
	disk := vfs.NewCrashableMem()
	o := testOptions(t, disk, Always)
	s, _ := mustOpen(t, o)
	s.Append(put(1, "m"))
	mustCommit(t, s, 1)
	mustClose(t, s)
	for failAt := 1; ; failAt++ {
		mem := crash(disk)
		fsys := newFaultyFS(mem)
		var n atomic.Int64
		failed := make(chan string, 1)
		fsys.fail(func(op errorfs.Op) error {
			switch op.Kind {
			case errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpCreate,
				errorfs.OpMkdirAll, errorfs.OpRename, errorfs.OpOpenDir, errorfs.OpLock:
				if n.Add(1) == int64(failAt) {
					failed <- op.Path
					return errBroken
				}
			}
			return nil
		})
		o.FS = fsys
		s, _, err := Open(o)
		if len(failed) == 0 {
			if failAt < 20 {
				t.Errorf("a start has only %d writes, want at least 19", failAt-1)
			}
			fsys.pick.Store(nil)
			mustClose(t, s)
			return
		}
		path := <-failed
		if !errors.Is(err, errBroken) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: Open = %v, want one line with the error of the disk", path, err)
		}
		o.FS = crash(mem)
		s, r := mustOpen(t, o)
		if got := leasesOf(t, r); len(got) != 1 {
			t.Errorf("%s: the recovered leases are %v, want one", path, got)
		}
		mustClose(t, s)
	}
}

// After a failure Pebble's operations do nothing and succeed. A Replay or a Backup may then still
// wait for the checkpointer.
func TestAFailedStoreReleasesNoSegmentThatTheCheckpointLacks(t *testing.T) {
	mem := vfs.NewCrashableMem()
	o := testOptions(t, mem, Always)
	o.SegmentSize = 8 << 10
	failing(&o)
	s, _ := mustOpen(t, o)
	s.checkpoints.mu.Lock() // the checkpoint stands still
	last := simba.Seq(0)
	for s.checkpoints.behind() < s.checkpoints.step {
		last++
		s.Append(put(last, fmt.Sprint("m", last)))
		mustCommit(t, s, last)
	}
	s.backups.mu.Lock() // as while a backup begins: Close keeps the files open
	s.files.fault.trip(errBroken)
	if err := s.Close(); !errors.Is(err, errBroken) {
		t.Errorf("Close = %v, want the error of the disk", err)
	}
	s.checkpoints.mu.Unlock()
	for range 2 {
		if err := s.checkpoints.advanced(s.journal.Durable(), func(*checkpoint) error { return nil }); !errors.Is(err, errBroken) {
			t.Errorf("advanced = %v, want the error of the disk", err)
		}
	}
	s.backups.mu.Unlock()
	awaitUnlocked(t, mem)

	s, r := mustOpen(t, testOptions(t, mem, Always))
	defer mustClose(t, s)
	if n := len(leasesOf(t, r)); n != int(last) {
		t.Errorf("the directory has %d leases, want %d", n, last)
	}
}
