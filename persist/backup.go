package persist

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/simba-resp/simba-resp"
)

// A backup is a stream of bytes: the rows of the checkpoint, as Pebble has them.
//
//	magic    backupMagic
//	format   uvarint
//	time     varint, Unix milliseconds of the server's wall clock
//	rows     in the order of their keys: for each row its key and its value, both by appendString
//	end      an empty key
//	sum      SHA-256 of all bytes before
//
// Each row states its own format. One of the rows is the meta row.
const (
	backupMagic  = "simba-resp backup\n"
	backupFormat = 1
)

const backupPart = 1 << 20

// ErrBackupRuns is returned by Store.Backup and Replica.Snapshot while another backup or snapshot of
// the store is open.
var ErrBackupRuns = errors.New("another backup is running")

// Backup is a consistent copy of a store at one moment, as a stream of bytes. Until Close, Pebble
// keeps the files of that moment.
//
// Its methods are safe for concurrent use.
type Backup struct {
	files *files

	// Protected by backups.mu:
	rows *pebble.Iterator // nil after Close
	more bool             // rows points to a row that is not in the stream yet
	next []byte           // bytes of the stream that Next has not returned
	sum  hash.Hash        // of the bytes that were added to next
	done bool             // the sum was added to next
	err  error            // of an earlier Next
}

// backups has the open backup of a store. At most one backup is open, so the files that Pebble
// keeps for it take no more space than one copy of the rows.
type backups struct {
	mu     sync.Mutex // protects the fields below and the open backup; also held while a backup begins
	open   *Backup
	closed bool // the store's files are closed, or about to be
}

// Backup begins a backup, which has every change that was appended before the call. Backup first
// advances the checkpoint. Neither the engine nor a commit waits for that. The caller must close
// the backup; Close of the store closes it too. Backup returns ErrBackupRuns while another backup
// is open, and simba.ErrStopped when the store is closed.
func (s *Store) Backup() (*Backup, error) {
	if err := s.writeAll(false); err != nil {
		return nil, err
	}
	b, _, _, err := s.files.backup()
	return b, err
}

// backup begins a backup of the checkpoint, which it advances as far as it may. It returns the index and
// the term of the last record in the backup.
func (f *files) backup() (b *Backup, index, term uint64, err error) {
	f.backups.mu.Lock()
	defer f.backups.mu.Unlock()
	switch {
	case f.backups.closed:
		return nil, 0, 0, simba.ErrStopped
	case f.backups.open != nil:
		return nil, 0, 0, ErrBackupRuns
	}
	var rows *pebble.Iterator // does not see later changes
	err = f.checkpoints.advanced(f.checkpoints.final(), func(c *checkpoint) (err error) {
		index, term = c.meta.Index, c.meta.Term
		rows, err = f.db.NewIter(nil)
		return pebbleError(err)
	})
	if err != nil {
		return nil, 0, 0, err
	}
	b = &Backup{files: f, rows: rows, more: rows.First(), sum: sha256.New()}
	head := binary.AppendUvarint([]byte(backupMagic), backupFormat)
	b.add(binary.AppendVarint(head, f.options.Wall().UnixMilli()))
	f.backups.open = b
	return b, index, term, nil
}

// Next returns the next bytes of the stream, at most 1 MiB, and io.EOF after the last. After any
// other error the stream has ended and is not a backup.
func (b *Backup) Next() ([]byte, error) {
	b.files.backups.mu.Lock()
	defer b.files.backups.mu.Unlock()
	if b.err == nil {
		b.err = b.fill()
	}
	if b.err != nil {
		return nil, b.err
	}
	if len(b.next) == 0 {
		return nil, io.EOF
	}
	n := min(len(b.next), backupPart)
	part := b.next[:n:n]
	b.next = b.next[n:]
	return part, nil
}

// fill adds rows to b.next until Next has enough bytes. After the last row it adds the end of the
// stream.
func (b *Backup) fill() error {
	if b.rows == nil {
		return simba.ErrStopped
	}
	if len(b.next) >= backupPart || b.done {
		return nil
	}
	b.next = append(make([]byte, 0, backupPart+backupPart/4), b.next...)
	for ; b.more && len(b.next) < backupPart; b.more = b.rows.Next() {
		value, err := b.rows.ValueAndErr()
		if err != nil {
			return pebbleError(err)
		}
		start := len(b.next)
		b.next = appendString(b.next, string(b.rows.Key()))
		b.next = appendString(b.next, string(value))
		b.sum.Write(b.next[start:])
	}
	if b.more {
		return nil
	}
	if err := b.rows.Error(); err != nil {
		return pebbleError(err)
	}
	b.add([]byte{0})
	b.next = b.sum.Sum(b.next)
	b.done = true
	return nil
}

func (b *Backup) add(p []byte) {
	b.next = append(b.next, p...)
	b.sum.Write(p)
}

// Close ends the backup. It is idempotent.
func (b *Backup) Close() error {
	b.files.backups.mu.Lock()
	defer b.files.backups.mu.Unlock()
	return b.closeLocked()
}

func (b *Backup) closeLocked() error {
	if b.rows == nil {
		return nil
	}
	err := b.rows.Close()
	b.rows, b.next, b.files.backups.open = nil, nil, nil
	return pebbleError(err)
}

// end closes the open backup, and prevents others.
func (b *backups) end() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.open == nil {
		return nil
	}
	return b.open.closeLocked()
}
