package journal

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Journal is an open journal. The caller must close it with Close.
//
// After the first error of a write or a sync, Append, Sync and Release return that error for ever.
// Nobody knows what is on disk then.
type Journal struct {
	o     Options
	cause atomic.Pointer[error] // the first error, or ErrClosed

	// The fields below belong to the goroutine that calls Append and Sync.
	appended uint64   // index of the last record
	file     vfs.File // the file of current
	offset   int64    // where the next frame begins in file
	frame    []byte   // memory for the next frame
	asked    bool     // fillAhead was called since current began

	durable atomic.Uint64 // index of the last synced record; changed by Append and Sync

	filler  sync.WaitGroup // waits for the goroutine that fills spares
	closing atomic.Bool    // when it is set, that goroutine stops

	// mu protects the fields below. It is never held during I/O.
	mu        sync.Mutex
	current   segment   // the segment that Append writes to; only Append replaces it
	full      []segment // segments before current, in order
	spares    []string  // paths of files that are ready to become segments
	lastSpare uint64    // largest number of a spare so far
	making    int       // number of files that are becoming spares
}

// Open reads the journal in o.Dir, finds its end and begins a new segment. Records yields the
// records that Open has found. The next record gets the index after them.
//
// If the journal cannot be used, Open changes nothing, and returns a *DamageError or an error that
// wraps ErrNewer. The caller must keep other processes out of the directory.
func Open(o Options) (*Journal, error) {
	o.roundSize()
	s, err := scanDir(&o)
	if err != nil {
		return nil, err
	}
	if err := o.FS.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	if err := s.makeDurable(&o); err != nil {
		return nil, err
	}
	j := &Journal{o: o}
	if err := j.begin(s); err != nil {
		return nil, err
	}
	return j, nil
}

// begin begins the first segment of this run.
func (j *Journal) begin(s *scan) error {
	if err := j.addSpares(s.spares); err != nil {
		return err
	}
	number, last := max(1, j.o.Segment), s.last
	if n := len(s.segments); n > 0 {
		end := s.segments[n-1]
		number, last = end.number+1, end.last
		if end.last < end.first { // the last segment has no record, so the new one replaces it
			number--
			s.segments = s.segments[:n-1]
		}
	}
	var err error
	j.full = s.segments
	if j.current, j.file, err = j.create(number, last+1, 0); err != nil {
		return err
	}
	j.offset = headerSize
	j.appended = last
	j.durable.Store(last)
	return j.retireAll(s.covered)
}

// Append writes a record after all others and returns the record's index, which is one more than
// that of the record before it. The record is durable after the next Sync.
//
// If the segment is full, Append syncs it and begins the next one. Append does not keep payload.
// One goroutine at a time may call Append, Sync and Close.
func (j *Journal) Append(payload []byte) (index uint64, err error) {
	if err := j.failure(); err != nil {
		return 0, err
	}
	if len(payload) > MaxPayload {
		return 0, ErrTooLarge
	}
	index = j.appended + 1
	// The segment keeps headSize bytes for its seal.
	if need := frameSize(len(payload)); j.offset+need+headSize > j.current.size {
		if err := j.rotate(need + headSize); err != nil {
			return 0, j.fail(err)
		}
	}
	if err := j.write(record, index, payload); err != nil {
		return 0, j.fail(err)
	}
	j.appended = index
	if !j.asked && j.offset > j.current.size/2 {
		j.asked = true
		j.fillAhead()
	}
	return index, nil
}

func (j *Journal) write(k kind, index uint64, payload []byte) error {
	f := frame{index: index, durable: j.durable.Load(), kind: k}
	j.frame = appendFrame(j.frame[:0], j.current.salt, f, payload)
	err := writeAt(j.file, j.current.path, j.frame, j.offset)
	j.offset += int64(len(j.frame))
	if cap(j.frame) > 1<<20 {
		j.frame = nil // frees the memory of a large record
	}
	return err
}

// rotate begins the next segment. The segment has space for frames of at least room bytes in all.
func (j *Journal) rotate(room int64) error {
	if err := j.sync(); err != nil {
		return err
	}
	s, f, err := j.create(j.current.number+1, j.appended+1, room)
	if err != nil {
		return err
	}
	j.file.Close()
	j.file, j.offset, j.asked = f, headerSize, false
	j.mu.Lock()
	defer j.mu.Unlock()
	j.current.last = j.appended
	j.full = append(j.full, j.current)
	j.current = s
	return nil
}

// Sync makes all records durable.
func (j *Journal) Sync() error {
	if err := j.failure(); err != nil {
		return err
	}
	if err := j.sync(); err != nil {
		return j.fail(err)
	}
	return nil
}

// sync syncs the current file, which has all records that are not durable.
func (j *Journal) sync() error {
	if j.durable.Load() == j.appended {
		return nil
	}
	if err := syncFile(j.file, j.current.path); err != nil {
		return err
	}
	j.durable.Store(j.appended)
	return nil
}

// Durable returns the index up to which all records are durable. It is safe for concurrent use.
func (j *Journal) Durable() uint64 { return j.durable.Load() }

// Current returns the path and the state of the file that Append writes to. It is safe for
// concurrent use.
func (j *Journal) Current() (path string, file os.FileInfo) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.current.path, j.current.info
}

// Close makes all records durable, seals the journal and closes its files. After a failure it
// returns the cause and seals nothing. No other method may run. Afterwards Append, Sync and Release
// return ErrClosed or the cause. Close is idempotent.
func (j *Journal) Close() error {
	if !j.closing.Swap(true) {
		j.filler.Wait()
		err := j.failure()
		if err == nil {
			err = j.seal()
		}
		if closeErr := j.file.Close(); err == nil {
			err = closeErr
		}
		if err == nil {
			err = ErrClosed
		}
		_ = j.fail(err)
	}
	if err := j.failure(); !errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

// seal writes a seal behind the last record and syncs it. The seal states that all records were
// durable.
func (j *Journal) seal() error {
	if err := j.Sync(); err != nil {
		return err
	}
	if err := j.write(seal, j.appended+1, nil); err != nil {
		return err
	}
	return syncFile(j.file, j.current.path)
}

// fail makes err the first error, unless there is one. It returns err.
func (j *Journal) fail(err error) error {
	j.cause.CompareAndSwap(nil, &err)
	return err
}

// failure returns the first error, or nil.
func (j *Journal) failure() error {
	if err := j.cause.Load(); err != nil {
		return *err
	}
	return nil
}
