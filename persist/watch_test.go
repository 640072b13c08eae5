package persist

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/need"
)

// ways are functions that each take the data directory away from an open store.
var ways = map[string]func(o Options) error{
	"the directory is removed": func(o Options) error { return os.RemoveAll(o.Dir) },
	"the parent is removed":    func(o Options) error { return os.RemoveAll(filepath.Dir(o.Dir)) },
	"the directory is renamed": func(o Options) error { return os.Rename(o.Dir, o.Dir+".old") },
	"a file is in the directory's place": func(o Options) error {
		return errors.Join(os.RemoveAll(o.Dir), os.WriteFile(o.Dir, nil, 0o600))
	},
	"another data directory is in its place": func(o Options) error {
		other := o
		other.Dir += ".other"
		s, _, err := Open(other)
		if err != nil {
			return err
		}
		return errors.Join(s.Close(), os.Rename(o.Dir, o.Dir+".old"), os.Rename(other.Dir, o.Dir))
	},
	"all files are removed": func(o Options) error {
		names, err := filepath.Glob(filepath.Join(o.Dir, "*"))
		for _, name := range names {
			err = errors.Join(err, os.RemoveAll(name))
		}
		return err
	},
	"the lock is removed":    func(o Options) error { return os.Remove(filepath.Join(o.Dir, lockName)) },
	"the journal is removed": func(o Options) error { return os.RemoveAll(filepath.Join(o.Dir, journalName)) },
	"the segments are removed": func(o Options) error {
		names, err := filepath.Glob(filepath.Join(o.Dir, journalName, "*.seg"))
		for _, name := range names {
			err = errors.Join(err, os.Remove(name))
		}
		return err
	},
	"a segment is replaced by a copy": func(o Options) error {
		names, err := filepath.Glob(filepath.Join(o.Dir, journalName, "*.seg"))
		for _, name := range names {
			text, readErr := os.ReadFile(name)
			err = errors.Join(err, readErr, os.WriteFile(name+".copy", text, 0o600), os.Rename(name+".copy", name))
		}
		return err
	},
}

// The clock is fake, so the limit of a second also holds on a busy machine.
func TestADataDirectoryThatIsLostWhileItIsOpenEndsTheStoreWithinASecond(t *testing.T) {
	for name, lose := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { losesItsDirectory(t, lose) })
		})
	}
}

func losesItsDirectory(t *testing.T, lose func(o Options) error) {
	o := diskOptions(t)
	fatal := failing(&o)
	s, _ := mustOpen(t, o)
	s.Append(put(1, "m"))
	mustCommit(t, s, 1)

	if err := lose(o); err != nil {
		t.Fatal(err)
	}
	lost := time.Now()
	select {
	case err := <-fatal:
		if !errors.Is(err, errRemoved) {
			t.Errorf("Fatal got %v, want errRemoved", err)
		}
		if took := time.Since(lost); took > time.Second {
			t.Errorf("the store noticed the loss after %v, want at most a second", took)
		}
	case <-time.After(need.Hang):
		t.Fatal("the store does not notice the loss")
	}
	s.Append(put(2, "m"))
	if err := s.Commit(abs(2)); !errors.Is(err, simba.ErrStopped) {
		t.Errorf("Commit after the loss = %v, want ErrStopped", err)
	}
	if err := s.Close(); !errors.Is(err, errRemoved) {
		t.Errorf("Close = %v, want errRemoved", err)
	}
	if len(fatal) > 0 {
		t.Errorf("Fatal was called again: %v", <-fatal)
	}
}

// The store releases a full segment while the watch checks it.
func TestReleasedSegmentsDoNotTriggerTheWatch(t *testing.T) {
	o := diskOptions(t)
	s, _ := openClosed(t, o)
	segments := map[string]bool{}
	enough := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		big := strings.Repeat("x", 10<<10)
		for seq := simba.Seq(1); ; seq++ {
			select {
			case <-enough:
				return
			default:
			}
			ch := put(seq, "m")
			ch.Lease.Fields = []simba.Field{{Name: big, Value: "1"}}
			s.Append(ch)
			if err := s.Commit(abs(seq)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer writer.Wait()
	defer close(enough)
	for end := time.Now().Add(need.Hang); len(segments) < 5; {
		if err := s.watch.check(); err != nil {
			t.Fatal(err)
		}
		path, _ := s.watch.segment()
		segments[path] = true
		if time.Now().After(end) {
			t.Fatalf("the watch checked only the segments %v, want 5", segments)
		}
	}
}

func TestAnUnreadableFileDoesNotTriggerTheWatch(t *testing.T) {
	for err, want := range map[error]bool{
		&fs.PathError{Op: "stat", Err: syscall.ENOENT}:  true,
		&fs.PathError{Op: "stat", Err: syscall.ENOTDIR}: true,
		&fs.PathError{Op: "stat", Err: syscall.EACCES}:  false,
		&fs.PathError{Op: "stat", Err: syscall.EIO}:     false,
		&fs.PathError{Op: "stat", Err: syscall.EINTR}:   false,
	} {
		if got := isGone(err); got != want {
			t.Errorf("isGone(%v) = %v, want %v", err, got, want)
		}
	}
}

func TestAStoreInMemoryIsNotWatched(t *testing.T) {
	s, _ := openClosed(t, testOptions(t, vfs.NewMem(), Always))
	if s.watch != nil {
		t.Error("the watch checks the disk although the file system is in memory")
	}
}
