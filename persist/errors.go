package persist

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/simba-resp/simba-resp/persist/journal"
)

// Errors of Open, to match with errors.Is. Each text is the end of a sentence about the data
// directory.
var (
	// ErrInUse is returned if another process, or another Store in this process, has the directory
	// open.
	ErrInUse error = &stateError{"is", "in use by another process"}
	// ErrNewer is returned if the data has a format that this version does not know.
	ErrNewer error = &stateError{"was", "written by a newer version of simba-resp"}
	// ErrCorrupt is returned if files are missing or damaged. Recovered.Leases returns it for a
	// lease that cannot be read.
	ErrCorrupt error = &stateError{"is", "corrupt"}
	// ErrNoSpace is returned if less than 128 MiB are free.
	ErrNoSpace error = &stateError{"has", "too little free space"}
	// ErrClock is returned if the wall clock is before 2026 and the store is new. Restore returns it
	// if the wall clock is before the time of the backup.
	ErrClock = errors.New("the clock of this machine is behind")
	// ErrMember is returned by Open for the directory of a cluster's member.
	ErrMember error = &stateError{"is", "that of a member of a cluster: start the server with --cluster"}
	// ErrSingle is returned by OpenReplica for the directory of a single server.
	ErrSingle error = &stateError{"is", "that of a single server; simba-resp cluster recover makes it that of a member"}
	// ErrForeign is returned if the directory has files of others, but no file SIMBA-RESP. Open
	// changes nothing in it.
	ErrForeign error = &stateError{"is", "not empty and not a data directory of simba-resp"}
)

var errRecoveryDelay = fmt.Errorf("the recovery delay must be at least 0 and at most %v", MaxRecoveryDelay)

// errCommitTimeout is the error that Options.Fatal gets when a commit hangs.
var errCommitTimeout = errors.New("the disk did not answer in time")

// errCheckpointTimeout is the error that Options.Fatal gets when a commit or Close waits for a
// checkpoint that hangs.
var errCheckpointTimeout = errors.New("the disk did not answer the checkpoint in time")

// stateError is an error whose text ends a sentence that begins with a thing and the verb.
type stateError struct{ verb, text string }

func (e *stateError) Error() string { return e.text }

// describe makes a sentence in one line about a thing of the error. what is the thing with its path, and do is
// what failed for an error that is no stateError.
func describe(do, what string, err error) error {
	if err == nil {
		return nil
	}
	var state *stateError
	if errors.As(err, &state) {
		return fmt.Errorf("%s %s %w", what, state.verb, OneLine{err})
	}
	return fmt.Errorf("%s %s: %w", do, what, OneLine{err})
}

// pebbleError classifies an error of Pebble's, and makes it one line.
func pebbleError(err error) error {
	if err == nil {
		return nil
	}
	line := OneLine{err}
	if pebble.IsCorruptionError(err) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrCorrupt, line)
	}
	return line
}

func journalError(err error) error {
	var damage *journal.DamageError
	switch {
	case errors.As(err, &damage):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case errors.Is(err, journal.ErrNewer):
		return fmt.Errorf("%w (%w)", ErrNewer, err)
	default:
		return err
	}
}

// sortError classifies the error of a decoder.
func sortError(err error) error {
	var version *versionError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &version):
		return fmt.Errorf("%w (%w)", ErrNewer, err)
	default:
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
}

// OneLine is an error whose text has no line breaks. Pebble and errors.Join join several errors by
// line breaks.
type OneLine struct{ Err error }

func (e OneLine) Error() string { return strings.ReplaceAll(e.Err.Error(), "\n", "; ") }
func (e OneLine) Unwrap() error { return e.Err }
