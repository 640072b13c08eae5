package persist

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Replica is a member's copy of a store that the servers of a cluster keep. The members agree on
// entries, and each of them has the entries as the records of its journal, with the same indexes. An
// entry says how old leases were when the leader made it. Each member counts them by its own clock,
// from the moment at which it received the entry.
//
// An entry may be replaced until a majority of the members has it. So the checkpoint follows the
// journal only up to the index that Commit names.
//
// One goroutine at a time may call Append and Install, one SetMember, and one ReceiveSnapshot. All other
// methods are safe for concurrent use. None of them may run when Close is called, unless the store has
// failed.
type Replica struct {
	*files
	committed atomic.Uint64 // index of the last final entry
	record    []byte        // memory for the next record
	closing   func() error  // calls close once
	writing   sync.Mutex    // held by Append and Install
}

// EntryKind is what an entry is for.
type EntryKind byte

// The kinds.
const (
	EntryRecord  EntryKind = iota // a record of a leader's Store
	EntryEmpty                    // changes nothing
	EntryMembers                  // changes the members; the Replica only keeps it
)

// Entry is a record as the members of a cluster exchange it.
type Entry struct {
	Index, Term uint64
	Kind        EntryKind
	Data        []byte
}

// OpenReplica opens the store in o.Dir. It returns the errors of Open, but refuses the directory of a
// single server with ErrSingle: see OpenToRecover. The store of a new directory is empty, and has no floors.
func OpenReplica(o Options) (r *Replica, err error) {
	o.replica = true
	err = openDir(&o, func(f *files) error {
		r = &Replica{files: f}
		r.closing = sync.OnceValue(func() error {
			return r.close(func() { // after a failure, an Append or Install may still run
				r.writing.Lock()
				defer r.writing.Unlock()
			})
		})
		r.committed.Store(r.Checkpoint())
		f.checkpoints.final = r.committed.Load
		if _, err := f.checkpoints.checkpoint.readHistory(); err != nil {
			return err
		}
		return errors.Join(f.beginEpoch(), r.removeSnapshots(math.MaxUint64))
	})
	return r, err
}

// Close seals the journal and closes the files. It is idempotent.
func (r *Replica) Close() error { return describe("close", "the data directory", r.closing()) }

// Checkpoint returns the index of the last entry in the checkpoint.
func (r *Replica) Checkpoint() (index uint64) { return r.checkpoints.taken.Load() }

// Term returns the term of the last entry in the checkpoint.
func (r *Replica) Term() uint64 {
	r.checkpoints.mu.Lock()
	defer r.checkpoints.mu.Unlock()
	return r.checkpoints.checkpoint.meta.Term
}

// Entries yields the entries after the checkpoint. It must not overlap Append, Commit and Install.
func (r *Replica) Entries() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for rec, err := range r.journal.Records(r.Checkpoint(), r.journal.Durable()) {
			var e Entry
			if err = journalError(err); err == nil {
				if e, err = decodeEntry(rec.Payload); err != nil {
					err = recordError(rec.Index, err)
				}
				e.Index = rec.Index
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func decodeEntry(record []byte) (e Entry, err error) {
	h, changes, err := decodeHead(record)
	if err != nil {
		return e, err
	}
	e = Entry{Term: h.term, Kind: EntryEmpty}
	if h.seq != 0 {
		e.Kind, e.Data = EntryRecord, append([]byte(nil), record...)
		return e, nil
	}
	err = eachChange(changes, func(kind changeKind, body []byte) error {
		if kind != changeMembers {
			return errGarbage
		}
		e.Kind, e.Data = EntryMembers, append([]byte(nil), body...)
		return nil
	})
	return e, err
}

// Append makes entries durable. They replace those from the first one on, which must not be final.
// Append keeps no part of the entries. After an error the store has failed.
func (r *Replica) Append(entries []Entry) error {
	return r.exclusively("append", func() error { return r.append(entries) })
}

// exclusively calls Append's or Install's function, unless the store has failed.
func (r *Replica) exclusively(what string, do func() error) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	err := r.fault.cause()
	if err == nil {
		if err = do(); err != nil {
			r.fault.trip(fmt.Errorf("%s: %w", what, OneLine{err}))
		}
	}
	return err
}

func (r *Replica) append(entries []Entry) error {
	first, next := entries[0].Index, r.journal.Durable()+1
	if final := r.committed.Load(); first <= final || first > next {
		return fmt.Errorf("entry %d comes after entry %d, of which %d are final", first, next-1, final)
	}
	return r.write(func() error {
		if err := r.journal.Truncate(first - 1); err != nil {
			return err
		}
		for i := range entries {
			e := &entries[i]
			if want := first + uint64(i); e.Index != want {
				return fmt.Errorf("entry %d where entry %d should be", e.Index, want)
			}
			if err := r.encode(e); err != nil {
				return recordError(e.Index, err)
			}
			if _, err := r.journal.Append(r.record); err != nil {
				return err
			}
		}
		return nil
	})
}

// encode makes r.record of an entry.
func (r *Replica) encode(e *Entry) error {
	h := head{format: RecordFormat, wall: r.options.Wall().UnixMilli()}
	r.record = append(r.record[:0], make([]byte, headSize)...)
	switch e.Kind {
	case EntryRecord:
		var err error
		if h, _, err = decodeHead(e.Data); err != nil {
			return err
		}
		r.record = append(r.record, e.Data[headSize:]...)
	case EntryMembers:
		r.record = appendChange(r.record, changeMembers, e.Data)
	}
	h.localize(r.options.Boot.Now(), r.epoch.Generation)
	h.term = e.Term
	h.put(r.record)
	return nil
}

// Commit says that the entries up to index are final. Append must have made them durable.
func (r *Replica) Commit(index uint64) {
	if now := r.committed.Load(); index < now || !r.committed.CompareAndSwap(now, index) {
		return // Install was faster
	}
	if r.Checkpoint() == 0 { // from now on, OpenReplica refuses a store that has lost its journal
		_ = r.checkpoints.advanced(index, func(*checkpoint) error { return nil }) // an error ends the store
	}
	r.checkpoints.notifyFull()
}

// LeadOptions are the options of Lead. All must be set.
type LeadOptions struct {
	Now func() simba.Instant // the clock of the engine: see Options.Now
	// Propose makes a record an entry, and returns when it is final. It may keep the record.
	Propose func(record []byte) error
	Confirm func() error // returns nil if this member still led after the call
	// Format returns the newest format of records that all members read: see RecordFormat. It must not
	// block.
	Format func() uint32
}

// Lead returns the store of a leader, with the state after all final entries. Close of the Store
// leaves the Replica open.
func (r *Replica) Lead(o LeadOptions) (s *Store, rec *Recovered, err error) {
	own := *r.options
	own.Now, own.slept = o.Now, sleep(o.Now, own.Boot.Now)
	err = r.checkpoints.advanced(r.committed.Load(), func(c *checkpoint) error {
		m := c.meta
		if m.Token == 0 { // the first leader of the cluster
			floor, err := Floor(own.Wall())
			if err != nil {
				return err
			}
			m.Seq, m.Token = simba.Seq(floor), floor
		}
		// The committer uses the memory of the record again, but members may lack the entry still.
		propose := func(record []byte) error { return o.Propose(bytes.Clone(record)) }
		s, rec, err = r.newStore(&own, &m, newFault(func(error) {}), propose)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	s.confirm, s.format = o.Confirm, o.Format
	s.closing = sync.OnceValue(s.retire)
	return s, rec, s.begin()
}

// Member returns what SetMember has written last; empty = nothing.
func (r *Replica) Member() ([]byte, error) {
	return readFile(r.options.FS, r.options.Dir, memberName)
}

// SetMember makes the contents of the file MEMBER durable: what the member knows of itself and of its
// cluster. After an error the store has failed.
func (r *Replica) SetMember(text []byte) error {
	watchdog := time.AfterFunc(r.options.CommitTimeout, r.hangs)
	defer watchdog.Stop()
	err := replaceFile(r.options.FS, r.options.Dir, memberName, bytes.NewReader(text))
	if err != nil {
		r.fault.trip(fmt.Errorf("write %s: %w", memberName, OneLine{err}))
	}
	return cmp.Or(err, r.fault.cause()) // the watchdog may have been faster
}

func (r *Replica) path(name string) string { return r.options.FS.PathJoin(r.options.Dir, name) }

// Snapshot begins a snapshot of the state after all final entries, for a member that lacks entries.
// It is a Backup, and returns the errors of Store.Backup.
func (r *Replica) Snapshot() (b *Backup, index, term uint64, err error) {
	return r.backup()
}

// snapshotName is the format of the names of snapshots. It has the index.
const snapshotName = "snapshot-%d"

// ReceiveSnapshot keeps a snapshot for Install. It may take long, and holds up no other method.
func (r *Replica) ReceiveSnapshot(index, term uint64, from io.Reader) error {
	name := fmt.Sprintf(snapshotName, index)
	if err := replaceFile(r.options.FS, r.options.Dir, name, from); err != nil {
		return err
	}
	f, err := r.openSnapshot(index, term)
	if err != nil {
		_ = r.options.FS.Remove(r.path(name)) // the error at hand says more
		return err
	}
	return f.Close()
}

func (r *Replica) openSnapshot(index, term uint64) (*backupFile, error) {
	f, err := openBackup(r.options.FS, r.path(fmt.Sprintf(snapshotName, index)))
	if err != nil {
		return nil, err
	}
	if m := &f.meta; m.Index != index || m.Term != term {
		_ = f.Close() // the error at hand says more
		return nil, fmt.Errorf("the snapshot ends with entry %d of term %d, not %d of term %d", m.Index, m.Term, index, term)
	}
	return f, nil
}

// Install replaces the state and all entries by a snapshot. Each lease begins anew. After an error
// the store has failed.
func (r *Replica) Install(index, term uint64) error {
	var err error
	done := start(func() { err = r.exclusively("install a snapshot", func() error { return r.install(index, term) }) })
	if hung := r.checkpoints.await(done); hung != nil {
		r.fault.trip(fmt.Errorf("install a snapshot: %w", OneLine{hung}))
		return hung
	}
	return err
}

func (r *Replica) install(index, term uint64) error {
	f, err := r.openSnapshot(index, term)
	if err != nil {
		return err
	}
	defer f.Close()
	k := r.checkpoints
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.checkpoint.meta
	m.Seq, m.Token, m.Delay, m.Latest = f.meta.Seq, f.meta.Token, f.meta.Delay, r.options.Boot.Now()
	m.Index, m.Term, m.Segment = index, term, r.journal.NextSegment()
	if err := r.replaceRows(f, &m); err != nil {
		return pebbleError(err)
	}
	if err := r.fault.cause(); err != nil { // Pebble may have written nothing: see strictFS
		return err
	}
	k.checkpoint = newCheckpoint(r.db, m, r.options.HistoryLen)
	if _, err := k.checkpoint.readHistory(); err != nil {
		return err
	}
	if err := r.journal.Reset(index); err != nil {
		return err
	}
	r.committed.Store(index)
	k.taken.Store(index)
	return r.removeSnapshots(index)
}

// replaceRows replaces all rows by those of a snapshot, as one step.
func (r *Replica) replaceRows(f *backupFile, m *meta) error {
	b := r.db.NewBatch()
	defer b.Close()
	for _, kind := range []byte{leasePrefix, historyPrefix} {
		if err := b.DeleteRange([]byte{kind}, []byte{kind + 1}, nil); err != nil {
			return err
		}
	}
	wall := r.options.Wall().UnixMilli()
	return f.copyTo(context.Background(), r.db, b, math.MaxInt, m, func(l *simba.Lease, _ uint64) uint64 {
		l.Acquired, l.AcquiredAt = m.Latest, wall
		return m.Generation
	})
}

// removeSnapshots removes the snapshots up to an index. A later one may wait for its own Install, or
// may still be received.
func (r *Replica) removeSnapshots(last uint64) error {
	names, err := r.options.FS.List(r.options.Dir)
	for _, name := range names {
		var index uint64
		if n, _ := fmt.Sscanf(strings.TrimPrefix(name, temporaryPrefix), snapshotName, &index); n == 1 && index <= last {
			err = errors.Join(err, r.options.FS.Remove(r.path(name)))
		}
	}
	return err
}
