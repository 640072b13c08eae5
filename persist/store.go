package persist

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/persist/journal"
)

// MaxRecoveryDelay is the longest recovery delay. Only Redis commands on a lock key, such as SET,
// can make a lease with longer windows. Such a lease must be synced, in Async too.
const MaxRecoveryDelay = simba.MaxTTL + simba.MaxTransition

// Store is a journal on disk. Open returns one, and the caller must close it with Close.
//
// One goroutine at a time may call Append and AppendAll. All other methods are safe for concurrent
// use.
//
// Its committer decides what is written and when. Its files have no lock of their own.
type Store struct {
	*committer
	*files
	closing func() error // calls close, or retire, once
}

// Close writes and syncs all appended changes, seals the journal, and closes the files. Append must
// not be called any more. Close is idempotent.
//
// After a failure Close returns the cause at once. It closes the files in the background, when no
// operation hangs any more, and writes nothing.
//
// Close of the store of a cluster's leader writes nothing. It ends its commits with
// simba.ErrStopped, and leaves the files to the Replica.
func (s *Store) Close() error { return describe("close", "the data directory", s.closing()) }

func (s *Store) close() error {
	_ = s.writeAll(true) // an error is that of the fault
	return s.files.close(s.abandon)
}

// retire ends the store of a leader.
func (s *Store) retire() error {
	s.committer.fault.trip(simba.ErrStopped)
	s.abandon()
	return nil
}

// files are the files of a store: the journal takes its records, and the checkpoint follows. If the
// disk fails, hangs or vanishes, the process ends. The fields do not change after Open.
//
// Append and sync belong to one goroutine. All other methods are safe for concurrent use.
type files struct {
	created     bool
	options     *Options
	epoch       epoch // of the present boot
	fault       *fault
	lock        *pebble.Lock
	db          *pebble.DB
	journal     *journal.Journal
	checkpoints *checkpointer
	backups     backups

	watch      *watch         // nil unless the files are those of the operating system
	watchdog   *time.Timer    // belongs to the goroutine that writes a record
	ending     chan struct{}  // closed by close; ends the background goroutines
	background sync.WaitGroup // the watch and the checkpointer
}

// Created reports whether Open created the store, in a directory that had none.
func (f *files) Created() bool { return f.created }

// writeRecord appends a record to the journal and syncs it.
func (f *files) writeRecord(record []byte) error {
	return f.write(func() error {
		_, err := f.journal.Append(record)
		return err
	})
}

// write calls a function that appends to the journal, and syncs the journal. If the disk hangs, the
// watchdog ends the process.
func (f *files) write(add func() error) error {
	if err := f.checkpoints.awaitRoom(); err != nil {
		return err
	}
	f.watchdog.Reset(f.options.CommitTimeout)
	defer f.watchdog.Stop()
	if err := add(); err != nil {
		return err
	}
	f.checkpoints.notifyFull()
	if err := f.journal.Sync(); err != nil {
		return err
	}
	if f.fault.failed() { // the watchdog was faster
		return f.fault.cause()
	}
	return nil
}

// hangs ends the process: a write did not return in time.
func (f *files) hangs() {
	f.fault.trip(fmt.Errorf("commit: %w: %v", errCommitTimeout, f.options.CommitTimeout))
}

// close seals the journal and closes the files, when await has returned. Nobody may begin a write
// meanwhile. After a failure, close returns the cause at once, and the rest happens in the background.
func (f *files) close(await func()) error {
	close(f.ending)
	var err error
	closed := start(func() { // never ends if the disk hangs
		await()
		err = f.closeFiles()
	})
	if hung := f.checkpoints.await(closed); hung != nil { // the checkpointer may still run
		f.fault.trip(hung)
	}
	if f.fault.failed() {
		close(f.fault.closing)
		return f.fault.cause()
	}
	return err
}

// closeFiles closes the files when no backup and no goroutine in the background uses them any more.
func (f *files) closeFiles() error {
	err := f.backups.end()
	f.background.Wait()
	return errors.Join(f.journal.Close(), err, f.db.Close(), f.lock.Close())
}
