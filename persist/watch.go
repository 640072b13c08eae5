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

// watchEvery is how often the watch looks: often enough to notice within a second.
const watchEvery = 250 * time.Millisecond

// lockName is the file that Pebble keeps locked while the store is open.
const lockName = "LOCK"

// errRemoved is what Options.Fatal is told when files are gone from under a Store.
var errRemoved = errors.New("it was removed or replaced while the server was running")

// watch looks whether the data directory is still the one that is open. Writes to a
// file that was removed succeed: without it they would be acknowledged, and lost
// with the process.
//
// It looks at two files by their path. LOCK is there from the start to the end, and
// another file in its place means another directory, or a second server in this one.
// The segment that is written has the last changes, and nobody would miss it at the
// next start.
type watch struct {
	dir     string
	lock    os.FileInfo
	segment func() string // returns the path of the segment that is written
}

// newWatch returns the watch of the open directory.
func newWatch(dir string, segment func() string) (*watch, error) {
	lock, err := os.Stat(filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	return &watch{dir: dir, lock: lock, segment: segment}, nil
}

// look returns an error if a file is surely gone. A file that cannot be looked at
// may be there.
func (w *watch) look() error {
	lock, err := os.Stat(filepath.Join(w.dir, lockName))
	if isGone(err) || err == nil && !os.SameFile(lock, w.lock) {
		return fmt.Errorf("%s: %w", lockName, errRemoved)
	}
	path := w.segment()
	// A segment that is full by now may have been released.
	if _, err := os.Stat(path); isGone(err) && w.segment() == path {
		return fmt.Errorf("%s: %w", filepath.Base(path), errRemoved)
	}
	return nil
}

func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// run looks until done is closed or the store has failed. A disk that hangs holds it
// up, and is the watchdog's affair.
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
		if err := w.look(); err != nil {
			f.trip(err)
			return
		}
	}
}
