package journal

import (
	"errors"
	"fmt"
)

var (
	// ErrNewer is returned by Open if a segment has a format that this version does not know.
	ErrNewer = errors.New("written by a newer version of simba-resp")
	// ErrClosed is returned by Append, Sync and Release after Close.
	ErrClosed = errors.New("journal: closed")
	// ErrTooLarge is returned by Append for a payload of more than MaxPayload bytes. The journal
	// stays usable.
	ErrTooLarge = errors.New("journal: record too large")
)

// A DamageError is returned by Open if the journal lacks a durable record, or has a malformed one.
// Records returns it if a segment was damaged later. Match it with errors.As.
type DamageError struct {
	File   string // path of the segment
	Offset int64  // of the damage, in bytes
	Reason string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%s, offset %d: %s", e.File, e.Offset, e.Reason)
}

func damaged(file string, offset int64, format string, args ...any) error {
	return &DamageError{File: file, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}
