package persist

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
)

// ExitCode is the exit code of the process when a write fails and Options.Fatal is nil: EX_IOERR
// of sysexits.h.
const ExitCode = 74

// DefaultCommitTimeout is how long one write with its fsync may take by default.
const DefaultCommitTimeout = 10 * time.Second

// exitPatience bounds the time to log why the process ends.
const exitPatience = 500 * time.Millisecond

// Mode says when a change counts as committed.
type Mode uint8

const (
	// Always commits a change of a lease when it is synced.
	Always Mode = iota
	// Async commits most changes immediately and syncs them in the background. After a stop without
	// Close the next run has a recovery delay: Recovered.Delay.
	Async
)

func (m Mode) String() string {
	if m == Async {
		return "async"
	}
	return "always"
}

// Options are the options of Open. Only Dir is required.
type Options struct {
	// Dir is the data directory. If it does not exist, Open creates it, readable by its owner only.
	Dir string
	// FS is the file system of Dir; nil means the operating system's.
	FS vfs.FS
	// Mode is the durability of changes; the zero value is Always.
	Mode Mode
	// Boot is the present boot of the machine; the zero value means the result of MachineBoot.
	Boot Boot
	// Now is the clock of the engine whose leases are stored; nil means Boot.Now. It must count
	// from the same boot as Boot.Now.
	Now func() simba.Instant
	// Wall is the wall clock; nil means the machine's. The numbers of a new store begin at its time:
	// see Floor. Other times are stored for people to read.
	Wall func() time.Time
	// RecoveryDelay is the recovery delay of the first run of a new store, at most MaxRecoveryDelay;
	// 0 means none. A store that exists ignores it.
	RecoveryDelay time.Duration
	// SyncEvery is for Async. It bounds the time from a change to its fsync if no caller waits for
	// that fsync; 0 means 10 ms.
	SyncEvery time.Duration
	// CommitTimeout bounds one write with its fsync; 0 means DefaultCommitTimeout. While a commit
	// waits for a checkpoint, CommitTimeout bounds each write and each sync of the checkpoint.
	// Between them the checkpoint may read and compute for six times CommitTimeout.
	CommitTimeout time.Duration
	// Fatal is called once, when the store can make no change durable any more. It must end the
	// process. If it returns, Pebble's goroutines stay blocked until Close. If Fatal is nil, the
	// store logs the error and exits with ExitCode.
	Fatal func(error)
	// Logger gets Pebble's messages; nil means slog.Default.
	Logger *slog.Logger
	// HistoryLen is how many events are kept; 0 means 10,000.
	HistoryLen int
	// SegmentSize is the size of a segment of the journal, in bytes; 0 means 16 MiB.
	SegmentSize int64

	replica bool // the directory is that of a cluster's member
	single  bool // or that of a single server, which becomes a member's
	// slept returns by how much Now is behind the boot's clock; nil means that Now is never behind.
	slept func() time.Duration
}

// sleep returns a function that returns by how much engineClock is behind bootClock. If engineClock
// stands still while the machine sleeps, it falls behind.
func sleep(engineClock, bootClock func() simba.Instant) func() time.Duration {
	if bootClock == nil {
		return nil
	}
	return func() time.Duration {
		// engineClock is read first: time between the readings may make leases longer, never
		// shorter.
		now := engineClock()
		return max(0, bootClock().Sub(now))
	}
}

func (o *Options) ensureDefaults() error {
	if o.Dir == "" {
		return errors.New("no data directory given")
	}
	o.FS = cmp.Or(o.FS, vfs.Default)
	if o.Boot.ID == "" && o.Boot.Now == nil {
		o.Boot = MachineBoot()
	}
	if o.Now == nil {
		o.Now = o.Boot.Now
	} else {
		o.slept = sleep(o.Now, o.Boot.Now)
	}
	if o.Now == nil {
		return errors.New("no clock given for the boot")
	}
	if o.Boot.Now == nil {
		o.Boot.Now = o.Now
	}
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if o.RecoveryDelay < 0 || o.RecoveryDelay > MaxRecoveryDelay {
		return errRecoveryDelay
	}
	o.SyncEvery = cmp.Or(o.SyncEvery, 10*time.Millisecond)
	o.CommitTimeout = cmp.Or(o.CommitTimeout, DefaultCommitTimeout)
	o.HistoryLen = cmp.Or(o.HistoryLen, 10000)
	o.SegmentSize = cmp.Or(o.SegmentSize, 16<<20)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Fatal == nil {
		logger, dir := o.Logger, o.Dir
		o.Fatal = func(err error) {
			// A blocked log must not keep the process alive.
			time.AfterFunc(exitPatience, func() { os.Exit(ExitCode) })
			logger.Error("the data directory failed, exiting", "dir", dir, "err", err)
			os.Exit(ExitCode)
		}
	}
	return nil
}
