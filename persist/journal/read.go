package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// readAhead is how many bytes of a segment are read at a time.
const readAhead = 128 << 10

// reader reads the frames of a segment in order. It stops at the first invalid frame, and at a
// seal.
type reader struct {
	segment
	file   vfs.File
	in     *bufio.Reader
	offset int64  // of the next frame
	index  uint64 // of the next frame

	payload []byte // of the last frame; overwritten by the next
	durable uint64 // largest durable index of the frames so far
}

// newReader opens a segment. The caller must close the reader.
func newReader(fsys vfs.FS, s segment) (*reader, error) {
	f, err := fsys.Open(s.path, vfs.SequentialReadsOption)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	r := &reader{segment: s, file: f, offset: headerSize, index: s.first}
	if r.size, err = fileSize(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("journal: %s: %w", s.path, err)
	}
	r.in = r.from(headerSize)
	return r, nil
}

func (r *reader) close() error { return r.file.Close() }

// from returns the contents of the file from an offset on.
func (r *reader) from(offset int64) *bufio.Reader {
	size := max(block, min(readAhead, r.size))
	return bufio.NewReaderSize(io.NewSectionReader(r.file, offset, r.size-offset), int(size))
}

// next reads the next record into r.payload. If no record follows, next returns false, and r.offset
// is the end of the last record. Nobody may call next after that.
func (r *reader) next() (bool, error) {
	head, err := r.in.Peek(headSize)
	if err != nil {
		return false, r.unlessEOF(err)
	}
	f, ok := decodeFrame(head, r.salt)
	size := frameSize(int(f.length))
	if !ok || f.index != r.index || size > r.size-r.offset {
		return false, nil
	}
	if err := r.read(size); err != nil {
		return false, r.unlessEOF(err)
	}
	if checksum(r.salt, r.payload) != f.sum {
		return false, nil
	}
	r.payload = r.payload[:f.length]
	r.durable = max(r.durable, f.durable)
	switch f.kind {
	case record:
	case seal:
		return false, nil
	default:
		return false, damaged(r.path, r.offset, "record %d is a frame of the unknown kind %d", f.index, f.kind)
	}
	r.offset += size
	r.index++
	return true, nil
}

// read reads a frame of size bytes, and keeps all but its head.
func (r *reader) read(size int64) error {
	if _, err := r.in.Discard(headSize); err != nil {
		return err
	}
	if n := int(size - headSize); cap(r.payload) < n {
		r.payload = make([]byte, n)
	} else {
		r.payload = r.payload[:n]
	}
	_, err := io.ReadFull(r.in, r.payload)
	return err
}

// unlessEOF returns nil for the end of the file, which counts as an invalid frame.
func (r *reader) unlessEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return fmt.Errorf("journal: read %s: %w", r.path, err)
}

// hasLaterFrame searches the bytes after r.offset, the end, for a later frame. It returns true if
// the head of such a frame states that the record r.index was durable.
func (r *reader) hasLaterFrame() (bool, error) {
	for in := r.from(r.offset); ; {
		head, err := in.Peek(headSize)
		if err != nil {
			return false, r.unlessEOF(err)
		}
		if f, ok := decodeFrame(head, r.salt); ok && f.durable >= r.index {
			return true, nil
		}
		if _, err := in.Discard(align); err != nil {
			return false, r.unlessEOF(err)
		}
	}
}
