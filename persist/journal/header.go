package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	magic  = "simbaseg"
	format = 1
	// headerSize is the size of a header, in bytes: one block.
	headerSize = block
	// sumAt is the offset of the checksum.
	sumAt = headerSize - 8
)

// header is the beginning of a segment. Numbers are little endian, offsets and lengths are in
// bytes:
//
//	   0   8  magic
//	   8   4  format
//	  16  16  store id
//	  32   8  number of the segment
//	  40   8  salt
//	  48   8  index of the first record
//	4088   8  checksum of all before, without a salt
//
// Other bytes are zero. Every later format keeps magic, format and checksum where they are. So an
// earlier version can distinguish a newer segment from a damaged one.
type header struct {
	store  [16]byte
	number uint64
	salt   uint64
	first  uint64
}

func (h *header) encode() []byte {
	b := make([]byte, headerSize)
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[8:], format)
	copy(b[16:], h.store[:])
	binary.LittleEndian.PutUint64(b[32:], h.number)
	binary.LittleEndian.PutUint64(b[40:], h.salt)
	binary.LittleEndian.PutUint64(b[48:], h.first)
	binary.LittleEndian.PutUint64(b[sumAt:], checksum(0, b[:sumAt]))
	return b
}

// decodeHeader returns the header in b, or ErrNewer for one of a later format.
func decodeHeader(b []byte) (header, error) {
	if len(b) != headerSize || string(b[:8]) != magic ||
		binary.LittleEndian.Uint64(b[sumAt:]) != checksum(0, b[:sumAt]) {
		return header{}, errors.New("the header is damaged")
	}
	if f := binary.LittleEndian.Uint32(b[8:]); f > format {
		return header{}, fmt.Errorf("%w: format %d, this one reads up to %d", ErrNewer, f, format)
	}
	h := header{
		store:  [16]byte(b[16:32]),
		number: binary.LittleEndian.Uint64(b[32:]),
		salt:   binary.LittleEndian.Uint64(b[40:]),
		first:  binary.LittleEndian.Uint64(b[48:]),
	}
	if h.first == 0 {
		return header{}, errors.New("the header is malformed")
	}
	return h, nil
}

// readHeader reads the header of a segment, and checks that it matches the file's name and the
// store.
func readHeader(o *Options, number uint64) (segment, error) {
	s := segment{path: o.path(segmentName(number))}
	f, err := o.FS.Open(s.path)
	if err != nil {
		return s, fmt.Errorf("journal: %w", err)
	}
	defer f.Close()
	if s.size, err = fileSize(f); err != nil {
		return s, fmt.Errorf("journal: %s: %w", s.path, err)
	}
	b := make([]byte, headerSize)
	switch n, err := f.ReadAt(b, 0); {
	case n < headerSize && (err == nil || errors.Is(err, io.EOF)):
		return s, damaged(s.path, 0, "the file has %d bytes, the header alone has %d", s.size, headerSize)
	case n < headerSize:
		return s, fmt.Errorf("journal: %s: %w", s.path, err)
	}
	s.header, err = decodeHeader(b)
	switch {
	case errors.Is(err, ErrNewer):
		return s, fmt.Errorf("journal: %s was %w", s.path, err)
	case err != nil:
		return s, damaged(s.path, 0, "%v", err)
	case s.store != o.StoreID:
		return s, damaged(s.path, 0, "the segment belongs to another store: %x, not %x", s.store, o.StoreID)
	case s.number != number:
		return s, damaged(s.path, 0, "the segment is number %d", s.number)
	}
	return s, nil
}

func fileSize(f vfs.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
