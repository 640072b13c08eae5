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
// Its committer decides what is written and when. The Store has the files: it writes the
// committer's records to the journal, lets the checkpointer follow, and ends the process if the disk
// fails, hangs or vanishes. It has no lock of its own: the fields do not change after Open.
type Store struct {
	*committer

	created     bool
	timeout     time.Duration
	fault       *fault
	lock        *pebble.Lock
	db          *pebble.DB
	journal     *journal.Journal
	checkpoints *checkpointer
	backups     backups

	watch      *watch         // nil unless the files are those of the operating system
	watchdog   *time.Timer    // belongs to the goroutine that writes a record
	ending     chan struct{}  // closed by Close; ends the background goroutines
	background sync.WaitGroup // the watch and the checkpointer
	closing    func() error   // calls close once
}

// Created reports whether Open created the store, in a directory that had none.
func (s *Store) Created() bool { return s.created }

// writeRecord appends a record to the journal and syncs it. If the disk hangs, the watchdog ends
// the process.
func (s *Store) writeRecord(record []byte) error {
	if err := s.checkpoints.awaitRoom(); err != nil {
		return err
	}
	s.watchdog.Reset(s.timeout)
	defer s.watchdog.Stop()
	if _, err := s.journal.Append(record); err != nil {
		return err
	}
	s.checkpoints.notifyFull()
	if err := s.journal.Sync(); err != nil {
		return err
	}
	if s.fault.failed() { // the watchdog was faster
		return s.fault.cause()
	}
	return nil
}

// upToDate calls do when the checkpoint has all appended changes. While do runs, the checkpoint does
// not advance.
func (s *Store) upToDate(do func(*checkpoint) error) error {
	if err := s.writeAll(false); err != nil {
		return err
	}
	return s.checkpoints.advanced(s.journal.Durable(), do)
}

// Close writes and syncs all appended changes, seals the journal, and closes the files. Append must
// not be called any more. Close is idempotent.
//
// After a failure Close returns the cause at once. It closes the files in the background, when no
// operation hangs any more, and writes nothing.
func (s *Store) Close() error {
	if err := s.closing(); err != nil {
		return fmt.Errorf("close the data directory: %w", oneLine{err})
	}
	return nil
}

func (s *Store) close() error {
	if s.writeAll(true) != nil {
		close(s.fault.closing)
		go func() {
			s.abandon()
			_ = s.closeFiles() // the first failure says more
		}()
		return s.fault.cause()
	}
	s.abandon() // waits for the goroutine that wrote the final group
	close(s.ending)
	closed := make(chan struct{})
	var err error
	go func() { // never ends if the disk hangs now
		err = s.closeFiles()
		close(closed)
	}()
	if err := s.checkpoints.await(closed); err != nil { // the checkpointer may still run
		s.fault.trip(err)
		close(s.fault.closing)
		return s.fault.cause()
	}
	return errors.Join(s.journal.Close(), err)
}

// closeFiles closes the files when no backup and no goroutine in the background uses them any more.
// It ignores the error of the journal's Close, because Store.close calls the journal's Close again
// and gets the same error.
func (s *Store) closeFiles() error {
	err := s.backups.end()
	s.background.Wait()
	_ = s.journal.Close()
	return errors.Join(err, s.db.Close(), s.lock.Close())
}
