package journal

import (
	"errors"
	"fmt"
)

var (
	// ErrNewer is returned by Open if a segment has a format that this version does not know.
	ErrNewer = errors.New("written by a newer version of simba-resp")
	// ErrClosed is returned by methods that are called after Close.
	ErrClosed = errors.New("journal: closed")
	// ErrTooLarge is returned by Append for a payload of more than MaxPayload bytes. The journal
	// stays usable.
	ErrTooLarge = errors.New("journal: record too large")
)

// A DamageError is returned by Open if the journal lacks a record that was durable, or has a
// malformed one. Records returns it if a segment was damaged since. Match it with errors.As.
type DamageError struct {
	File   string // path of the segment
	Offset int64  // in bytes, of what is damaged
	Reason string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%s, offset %d: %s", e.File, e.Offset, e.Reason)
}

// damaged returns a DamageError.
func damaged(file string, offset int64, format string, args ...any) error {
	return &DamageError{File: file, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}
