package persist

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/persist/journal"
)

const (
	// seqReserve is how far the stored floor of Seq is beyond the last change while a Store is
	// open. So a change within this reserve can be committed without an fsync. A crash skips at
	// most this many numbers.
	seqReserve = 1 << 20
	// tokenReserve is how far, in Async, the stored floor of tokens is beyond the last token while
	// a Store is open. In Always the floor is the last token.
	tokenReserve = 1 << 20
	// MaxRecoveryDelay is the longest recovery delay. Only Redis commands on a lock key, such as
	// SET, can make a lease with longer windows. Such a lease must be synced, in Async too.
	MaxRecoveryDelay = simba.MaxTTL + simba.MaxTransition
	// maxPending limits the memory of changes that need not be synced, in bytes. If the next record
	// is larger, each further change must be synced, so the next Commit writes the record.
	maxPending = 4 << 20
	// maxRecord is the largest size of a record, in bytes. Only the last transaction of a record
	// may exceed it. A disk that writes 26 MB a second makes a record of this size durable within
	// the commit timeout.
	maxRecord = 256 << 20
)

// Store is a journal on disk. Open returns one, and the caller must close it with Close.
//
// One goroutine at a time may call Append and AppendAll. All other methods are safe for concurrent
// use.
type Store struct {
	mode         Mode
	now          func() simba.Instant
	bootNow      func() simba.Instant
	wall         func() time.Time
	slept        func() time.Duration // by how much now is behind bootNow; nil = never behind
	timeout      time.Duration
	syncEvery    time.Duration
	step         int64         // bytes of records in one checkpoint step: a segment's size
	maxRecord    int           // bytes; the constant, except in tests
	inherited    time.Duration // recovery delay that earlier runs left
	recoverUntil simba.Instant // end of the recovery delay
	epoch        epoch         // of this run
	created      bool

	lock    *pebble.Lock
	db      *pebble.DB
	journal *journal.Journal
	fault   *fault

	committed atomic.Uint64 // the largest committed Seq; written under mu

	ending     chan struct{}  // closed by Close; ends the background goroutines
	background sync.WaitGroup // the watch and the checkpointer
	watch      *watch         // nil unless the files are those of the operating system
	full       chan struct{}  // has a value when a segment has become full
	advanced   chan struct{}  // has a value when the checkpoint has advanced
	taken      atomic.Uint64  // index of the last record that the checkpoint has durably
	progress   *progress      // shows whether Pebble's changes to its files go on

	// checkpointing protects checkpoint. It is held while the checkpoint advances, for a Replay,
	// and while a backup begins. Neither the engine nor a commit waits for it.
	checkpointing sync.Mutex
	checkpoint    *checkpoint

	backups backups

	// watchdog belongs to the goroutine that writes.
	watchdog *time.Timer
	writer   sync.WaitGroup

	// mu protects the fields below. It is never held during I/O.
	mu       sync.Mutex
	next     *group   // the group that Append adds to
	ready    []*group // full groups, to be written before next
	current  *group   // the group that is being written; may be nil
	spare    *group   // for use as next; may be nil
	writing  bool     // a goroutine runs write
	closed   bool     // the final group was taken: nothing more will be written
	appended floors   // of the changes so far
	durable  floors   // of the last durable record
	stats    Stats
	scratch  []byte
	flush    *time.Timer // writes next, in Async

	closing func() error // calls close once
}

// floors are the largest Seq, the largest token and the longest lease of the changes so far. Each
// record states floors too, which may be larger. Then they cover later changes too: see mustSync.
type floors struct {
	seq     simba.Seq
	token   uint64
	longest time.Duration // TTL + transition; used in Async
}

// Created reports whether Open created the store, in a directory that had none.
func (s *Store) Created() bool { return s.created }

// Append adds a change to the next group. mustSync reports whether the change is the first of its
// group that must be synced. Append does no I/O and keeps no reference to ch.Events.
func (s *Store) Append(ch simba.Change) (mustSync bool) { return s.AppendAll([]simba.Change{ch}) }

// AppendAll is Append for several changes. A crash keeps all of them or none.
func (s *Store) AppendAll(changes []simba.Change) (mustSync bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range changes {
		mustSync = s.appendLocked(&changes[i]) || mustSync
	}
	s.closeLargeLocked()
	s.updateCommittedLocked()
	return mustSync
}

func (s *Store) appendLocked(ch *simba.Change) (mustSync bool) {
	g := s.next
	if g.changes == 0 {
		g.begin(ch)
		if s.slept != nil {
			g.slept = s.slept()
		}
	}
	s.encode(g, ch)
	if len(g.record) > g.limit {
		g.shrink()
	}
	if mustSync = g.mustSync == 0 && s.mustSync(g, ch); mustSync {
		g.mustSync = ch.Seq
	}
	if g.changes++; g.changes == 1 && s.mode == Async {
		s.flush.Reset(s.syncEvery)
	}
	g.last = ch.Seq
	s.appended.seq = ch.Seq
	s.appended.token = max(s.appended.token, ch.Token)
	if ch.Kind == simba.ChangePut {
		s.appended.token = max(s.appended.token, ch.Lease.Token)
		if windows := ch.Lease.TTL + ch.Lease.Transition; windows <= MaxRecoveryDelay {
			s.appended.longest = max(s.appended.longest, windows)
		}
	}
	return mustSync
}

func (s *Store) encode(g *group, ch *simba.Change) {
	switch ch.Kind {
	case simba.ChangePut:
		// Stored instants are of the boot's clock. The engine's clock may be behind that clock.
		l := ch.Lease
		l.Acquired = l.Acquired.Add(g.slept)
		if !g.hasBase {
			g.hasBase, g.base = true, l.Acquired
		}
		s.scratch = appendPut(s.scratch[:0], g.base, &l)
		g.record = appendChange(g.record, changePut, s.scratch)
	case simba.ChangeDelete:
		s.scratch = append(s.scratch[:0], ch.Lease.Mutex...)
		g.record = appendChange(g.record, changeDelete, s.scratch)
	}
	for i := range ch.Events {
		s.scratch = g.event.append(s.scratch[:0], &ch.Events[i])
		g.record = appendChange(g.record, changeEvent, s.scratch)
	}
}

// mustSync reports whether a client must not see the change, or a later one, before it is durable.
// The answer depends on the mode of durability.
//
// In Async a crash may lose a change that a client has seen. Two rules make that safe. The next run
// gives out no number that a lost change had. And the next run grants nothing new until every lease
// of a lost change has ended. So a change must be synced if the last durable record's floors do not
// cover it. A change that ends a tenure against its owner's will must be synced too.
func (s *Store) mustSync(g *group, ch *simba.Change) bool {
	if ch.Seq > s.durable.seq || len(g.record) > maxPending || s.closed {
		return true
	}
	if ch.Token > s.durable.token { // or the next run would give the token out again
		return true
	}
	if ch.Kind == simba.ChangeNone {
		return false
	}
	if s.mode == Always || ch.Forced {
		return true
	}
	return ch.Kind == simba.ChangePut &&
		(ch.Lease.Token > s.durable.token || ch.Lease.TTL+ch.Lease.Transition > s.durable.longest)
}

func (s *Store) updateCommittedLocked() {
	first := s.next.mustSync
	for _, g := range slices.Backward(s.ready) {
		first = cmp.Or(g.mustSync, first)
	}
	if s.current != nil {
		first = cmp.Or(s.current.mustSync, first)
	}
	if first == 0 {
		first = s.appended.seq + 1
	}
	s.committed.Store(uint64(first - 1))
}

// Committed returns the largest Seq up to which every change is committed: the change is durable,
// or need not be synced. Committed costs one atomic load.
func (s *Store) Committed() simba.Seq { return simba.Seq(s.committed.Load()) }

// Commit returns nil when every change up to seq is committed. Callers whose changes are in the
// same group share its fsync. It returns simba.ErrStopped if the store has failed, or if Close was
// called before the changes were appended.
func (s *Store) Commit(seq simba.Seq) error {
	if s.fault.failed() {
		return simba.ErrStopped
	}
	done, err := s.beginCommit(seq)
	if done == nil {
		return err
	}
	return s.wait(done)
}

// beginCommit starts the write of the changes up to seq, and returns a channel that is closed when
// they are durable. If they are committed already, it returns nil, nil.
func (s *Store) beginCommit(seq simba.Seq) (done <-chan struct{}, err error) {
	if seq <= s.Committed() {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if seq <= s.Committed() {
		return nil, nil
	}
	if s.current != nil && seq <= s.current.last {
		return s.current.done, nil
	}
	for _, g := range s.ready {
		if seq <= g.last {
			return g.done, nil
		}
	}
	if s.closed {
		return nil, simba.ErrStopped
	}
	s.next.wanted = true
	s.beginWriteLocked()
	return s.next.done, nil
}

func (s *Store) wait(done <-chan struct{}) error {
	select {
	case <-done:
	case <-s.fault.stopped:
	}
	if s.fault.failed() {
		return simba.ErrStopped
	}
	return nil
}

// Close writes and syncs all appended changes, seals the journal, and closes the files. Append must
// not be called any more. Close is idempotent.
//
// After a failure Close returns the cause at once, and closes the files in the background. If a
// goroutine met the failure inside Pebble, it blocks there and keeps the files open until the
// process ends.
func (s *Store) Close() error {
	if err := s.closing(); err != nil {
		return fmt.Errorf("close the data directory: %w", oneLine{err})
	}
	return nil
}

func (s *Store) close() error {
	if s.writeAll(true) != nil {
		go s.closeFailed()
		return s.fault.cause()
	}
	s.writer.Wait()
	close(s.ending)
	closed := make(chan struct{})
	var err error
	go func() { // never ends if Pebble meets a failure now
		err = s.closeFiles()
		close(closed)
	}()
	if err := s.awaitCheckpointer(closed); err != nil { // the checkpointer may still run
		s.fault.trip(err)
		return s.fault.cause()
	}
	return errors.Join(s.journal.Close(), err)
}

// writeAll waits until all appended changes are durable. If final is true, the store writes nothing
// after them.
func (s *Store) writeAll(final bool) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return simba.ErrStopped
	}
	if final {
		s.flush.Stop()
	}
	s.next.wanted, s.next.final = true, final
	s.beginWriteLocked()
	done := s.next.done
	s.mu.Unlock()
	return s.wait(done)
}

func (s *Store) closeFailed() {
	s.mu.Lock()
	s.closed = true // under mu, so no write begins later: see beginWriteLocked
	s.mu.Unlock()
	s.writer.Wait()
	_ = s.closeFiles() // the first failure says more
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
