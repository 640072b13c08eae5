package persist

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
)

// errNoBackup is returned for a directory, and for a file that does not begin with backupMagic.
var errNoBackup error = &stateError{"is", "not a backup of simba-resp"}

// BackupInfo describes a backup.
type BackupInfo struct {
	Store  string    // id of the store, in hexadecimal
	Taken  time.Time // by the server's wall clock, without fractions of a millisecond
	Seq    simba.Seq // no client of the server had seen a larger one
	Token  uint64    // no client of the server had seen a larger one
	Leases int
	Events int
	Size   int64 // bytes

	// Longest is TTL + transition of the longest lease in the backup, and LongestOf is its mutex.
	// Neither considers leases that are longer than a contender can ask for. Only lock keys can
	// have those, and Others counts them.
	Longest   time.Duration
	LongestOf string
	Others    int
}

// ReadBackup checks the whole backup in a file and describes it. Its errors name the file, and
// match ErrCorrupt or ErrNewer if that is the reason. If fsys is nil, the file is the operating
// system's.
func ReadBackup(fsys vfs.FS, path string) (*BackupInfo, error) {
	f, err := openBackup(fsys, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.info, nil
}

// backupFile is a backup that was checked. It stays open, so that nobody can replace it.
type backupFile struct {
	vfs.File
	path string
	info *BackupInfo
	meta meta
}

func openBackup(fsys vfs.FS, path string) (*backupFile, error) {
	if fsys == nil {
		fsys = vfs.Default
	}
	file, err := fsys.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open backup: %w", err)
	}
	f := &backupFile{File: file, path: path}
	if err := f.check(); err != nil {
		_ = file.Close() // the error at hand says more
		return nil, err
	}
	return f, nil
}

func (f *backupFile) error(err error) error { return describe("read", "backup "+f.path, err) }

// check checks the sum first, so that no damaged length is trusted. Then it checks each row.
func (f *backupFile) check() error {
	size, err := f.checkSum()
	if err != nil {
		return f.error(err)
	}
	f.info = &BackupInfo{Size: size}
	return f.rows(func(key, value []byte) error { return f.error(sortError(f.describe(key, value))) })
}

// checkSum checks the beginning and the sum of the file, and returns its size.
func (f *backupFile) checkSum() (size int64, err error) {
	stat, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if stat.IsDir() {
		return 0, errNoBackup
	}
	size = stat.Size()
	magic := make([]byte, min(size, int64(len(backupMagic))))
	if _, err := f.ReadAt(magic, 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if !bytes.HasPrefix([]byte(backupMagic), magic) || len(magic) == 0 {
		return 0, errNoBackup
	}
	body := size - sha256.Size
	if body < int64(len(backupMagic)) {
		return 0, fmt.Errorf("%w: it ends after %d bytes", ErrCorrupt, size)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, body)); err != nil {
		return 0, err
	}
	var stored [sha256.Size]byte
	if _, err := f.ReadAt(stored[:], body); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if !bytes.Equal(stored[:], sum.Sum(nil)) {
		return 0, fmt.Errorf("%w: its checksum differs, so it is damaged or cut short", ErrCorrupt)
	}
	return size, nil
}

// rows calls do for each row, up to its first error. Key and value are valid until do returns.
func (f *backupFile) rows(do func(key, value []byte) error) error {
	body := f.info.Size - sha256.Size
	r := &backupReader{in: bufio.NewReaderSize(io.NewSectionReader(f, 0, body), 256<<10), size: body}
	_, r.err = r.in.Discard(len(backupMagic))
	format := r.uvarint()
	if r.err == nil && format > backupFormat {
		return f.error(sortError(&versionError{"backup format", format, backupFormat}))
	}
	f.info.Taken = time.UnixMilli(r.varint())
	var key, value []byte
	for {
		if key = r.bytes(key); len(key) == 0 {
			break
		}
		value = r.bytes(value)
		if r.err != nil {
			break
		}
		if err := do(key, value); err != nil {
			return err
		}
	}
	if _, err := r.in.Peek(1); r.err == nil && (!errors.Is(err, io.EOF) || format == 0 || f.meta.Generation == 0) {
		r.err = errGarbage
	}
	// The sum of the bytes is right, so the disk has not damaged them. If they end in the middle of a
	// row, they were never a backup.
	if errors.Is(r.err, errGarbage) || errors.Is(r.err, io.EOF) || errors.Is(r.err, io.ErrUnexpectedEOF) {
		r.err = sortError(errGarbage)
	}
	return f.error(r.err)
}

func (f *backupFile) describe(key, value []byte) error {
	i := f.info
	switch {
	case key[0] == leasePrefix:
		l, _, err := decodeLeaseRow(key, value)
		if err != nil {
			return err
		}
		i.Leases++
		switch windows := l.TTL + l.Transition; {
		case l.TTL == simba.Endless || windows > MaxRecoveryDelay:
			i.Others++
		case windows > i.Longest:
			i.Longest, i.LongestOf = windows, l.Mutex
		}
	case key[0] == historyPrefix:
		_, events, err := decodeRow(key, value)
		if err != nil {
			return err
		}
		i.Events += len(events)
	case string(key) == metaKey:
		m, err := decodeMeta(value)
		if err != nil {
			return err
		}
		f.meta = m
		i.Store, i.Seq, i.Token = hex.EncodeToString(m.Store[:]), m.Seq, m.Token
	default:
		return errGarbage
	}
	return nil
}

// backupReader decodes a stream. After the first error every read returns zero.
type backupReader struct {
	in   *bufio.Reader
	size int64 // bytes of the stream
	err  error
}

func (r *backupReader) uvarint() (v uint64) {
	if r.err == nil {
		v, r.err = binary.ReadUvarint(r.in)
	}
	return v
}

func (r *backupReader) varint() (v int64) {
	if r.err == nil {
		v, r.err = binary.ReadVarint(r.in)
	}
	return v
}

// bytes reads a length and as many bytes, into the memory of buf.
func (r *backupReader) bytes(buf []byte) []byte {
	n := r.uvarint()
	if r.err == nil && n > uint64(min(r.size, math.MaxInt32)) {
		r.err = errGarbage
	}
	if r.err != nil {
		return nil
	}
	buf = slices.Grow(buf[:0], int(n))[:n]
	_, r.err = io.ReadFull(r.in, buf)
	return buf
}
