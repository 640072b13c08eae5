package persist

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// The first byte of a key is the kind of its row.
const (
	metaKey       = "m"
	leasePrefix   = 'l'
	historyPrefix = 'h'
)

// errGarbage is returned for bytes that no version of simba-resp has written.
var errGarbage = errors.New("malformed record")

// A versionError is returned for bytes that only a later version of simba-resp can have written.
type versionError struct {
	what            string // the thing that has the version
	version, newest uint64
}

func (e *versionError) Error() string {
	return fmt.Sprintf("%s %d; this one reads up to %d", e.what, e.version, e.newest)
}

// appendString appends s with its length in front.
func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// reader decodes a record. After the first fault every read returns zero. So a decoder checks for
// faults once, with finish.
type reader struct {
	rest   []byte
	broken bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	return skip(r, v, n)
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	return skip(r, v, n)
}

func skip[T uint64 | int64](r *reader, v T, n int) T {
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) duration(limit time.Duration) time.Duration {
	v := r.uvarint()
	if v > uint64(limit) {
		r.fail()
		return 0
	}
	return time.Duration(v)
}

// bytes reads a length and as many bytes, without a copy.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.fail()
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) string() string { return string(r.bytes()) }

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail()
		return 0
	}
	c := r.rest[0]
	r.rest = r.rest[1:]
	return c
}

// version reads a version. It returns a versionError if the version is larger than newest.
func (r *reader) version(newest uint64) error {
	v := r.uvarint()
	if v == 0 {
		r.fail()
	}
	if v > newest {
		return &versionError{"format", v, newest}
	}
	return nil
}

func (r *reader) fail() { r.rest, r.broken = nil, true }

// finish returns errGarbage unless the record was read to its end without fault.
func (r *reader) finish() error {
	if r.broken || len(r.rest) != 0 {
		return errGarbage
	}
	return nil
}
