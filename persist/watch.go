package persist

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// watchEvery is the interval of the watch, which notices a loss within a second.
const watchEvery = 250 * time.Millisecond

// lockName is the file that Pebble keeps locked while the store is open.
const lockName = "LOCK"

// errRemoved is the error that Options.Fatal gets when files of an open Store are gone.
var errRemoved = errors.New("it was removed or replaced while the server was running")

// watch checks that the data directory is still the one that is open. Writes to a removed file
// succeed. Without the watch the server would acknowledge them, and lose them when it stops.
//
// The watch compares two open files with the files at their paths. If LOCK differs, the directory
// was replaced, or a second server uses it. The current segment has the last changes, and the next
// start would not notice its loss.
type watch struct {
	dir     string
	lock    os.FileInfo
	segment func() (path string, file os.FileInfo) // the current segment
}

func newWatch(dir string, segment func() (string, os.FileInfo)) (*watch, error) {
	lock, err := os.Stat(filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	return &watch{dir: dir, lock: lock, segment: segment}, nil
}

// check returns an error if a file is surely gone. If it cannot examine a file, it returns nil.
func (w *watch) check() error {
	if isLost(filepath.Join(w.dir, lockName), w.lock) {
		return fmt.Errorf("%s: %w", lockName, errRemoved)
	}
	path, file := w.segment()
	if isLost(path, file) {
		// If the segment is full by now, the journal may have released it.
		if current, _ := w.segment(); current == path {
			return fmt.Errorf("%s: %w", filepath.Base(path), errRemoved)
		}
	}
	return nil
}

// isLost reports whether a path surely leads to another file, or to none.
func isLost(path string, file os.FileInfo) bool {
	now, err := os.Stat(path)
	return isGone(err) || err == nil && !isSame(now, file)
}

func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// isSame is os.SameFile, but accepts results of Pebble's file system.
func isSame(a, b os.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, both := b.Sys().(*syscall.Stat_t)
	return !ok || !both || x.Dev == y.Dev && x.Ino == y.Ino
}

// run checks until done is closed or the store has failed. A hanging disk blocks run, but the
// watchdog notices the disk.
func (w *watch) run(done <-chan struct{}, f *fault) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-done:
			return
		case <-f.stopped:
			return
		}
		if err := w.check(); err != nil {
			f.trip(err)
			return
		}
	}
}
