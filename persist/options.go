package persist

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
)

// ExitCode is the code with which the process ends when a write fails and
// Options.Fatal is nil: EX_IOERR of sysexits.h.
const ExitCode = 74

// exitPatience is how long the log may take to say why the process ends.
const exitPatience = 500 * time.Millisecond

// Mode is what a Store promises of a change that is tellable.
type Mode uint8

// The modes.
const (
	// Always syncs a change of a lease before it is tellable.
	Always Mode = iota
	// Async makes most changes tellable at once and syncs them in the background.
	// After a stop without Close the next run has to be quiet: Recovered.Quiet.
	Async
)

func (m Mode) String() string {
	if m == Async {
		return "async"
	}
	return "always"
}

// Options are how to open a Store. Only Dir is required.
type Options struct {
	// Dir is the data directory. It is made, readable by its owner only, if it
	// does not exist.
	Dir string
	// FS is the file system that has Dir; nil is the operating system's.
	FS vfs.FS
	// Mode is the durability of changes; the zero value is Always.
	Mode Mode
	// Boot tells one boot of the machine from another; the zero value is that of
	// this machine.
	Boot Boot
	// Now is the clock of the engine whose leases are stored; nil is Boot.Now.
	// Both must count from the same boot.
	Now func() simba.Instant
	// Wall is the wall clock, whose time is stored for people to read; nil is the machine's.
	Wall func() time.Time
	// SyncEvery is how long a change waits for its fsync at most when nobody asks
	// for it, in Async; 0 is 10 ms.
	SyncEvery time.Duration
	// MinFree is how many bytes must be free at the start; 0 is 128 MiB: room for the
	// journal's four files (64 MiB) and a checkpoint of what three segments hold (48 MiB).
	MinFree uint64
	// CommitTimeout is how long one write with its fsync may take before it counts
	// as failed; 0 is 10 s. It bounds each write and each sync of a checkpoint, too, while a
	// commit waits for that. What it reads and computes between them has six times that.
	CommitTimeout time.Duration
	// Fatal is called once, when the store can no longer promise anything, and
	// must end the process: the goroutine that failed does not run on even if
	// Fatal returns, and holds on to what it has. If nil, the error is logged and
	// the process exits with ExitCode.
	Fatal func(error)
	// Logger gets what Pebble has to say; nil is slog.Default.
	Logger *slog.Logger
	// Yield lets others add to the group of changes that is about to be written; nil is
	// runtime.Gosched. A simulation brings one that returns when nobody can go on.
	Yield func()
	// HistoryLen is how many events are kept; 0 is 10,000.
	HistoryLen int
	// SegmentSize is the size of a segment of the journal, in bytes; 0 is 16 MiB.
	SegmentSize int64

	// slept returns by how much Now has fallen behind the boot's clock; nil = never.
	slept func() time.Duration
}

// sleep returns a function that tells by how much now has fallen behind boot: a
// clock that stands still while the machine is suspended does.
func sleep(now, boot func() simba.Instant) func() time.Duration {
	if boot == nil {
		return nil
	}
	return func() time.Duration {
		n := now() // first, so that what lies between the readings makes leases longer
		return max(0, boot().Sub(n))
	}
}

// ensureDefaults replaces zero values.
func (o *Options) ensureDefaults() error {
	if o.Dir == "" {
		return errors.New("no data directory given")
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
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
	o.SyncEvery = cmp.Or(o.SyncEvery, 10*time.Millisecond)
	o.MinFree = cmp.Or(o.MinFree, 128<<20)
	o.CommitTimeout = cmp.Or(o.CommitTimeout, 10*time.Second)
	o.HistoryLen = cmp.Or(o.HistoryLen, 10000)
	o.SegmentSize = cmp.Or(o.SegmentSize, 16<<20)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Fatal == nil {
		logger, dir := o.Logger, o.Dir
		o.Fatal = func(err error) {
			// Whoever reads the log may have stopped to; that must not keep us.
			time.AfterFunc(exitPatience, func() { os.Exit(ExitCode) })
			logger.Error("the data directory failed, exiting", "dir", dir, "err", err)
			os.Exit(ExitCode)
		}
	}
	if o.Yield == nil {
		o.Yield = runtime.Gosched
	}
	return nil
}
