package persist

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
)

// Errors of Restore, to match with errors.Is.
var (
	// ErrNotEmpty is returned if the data directory has files.
	ErrNotEmpty = errors.New("not empty")
	// ErrDelayShort is returned if the backup shows a lease that is longer than
	// RestoreOptions.RecoveryDelay.
	ErrDelayShort = errors.New("a lease is longer")
)

// RestoreOptions are the options of Restore. Required are From, Dir, and either RecoveryDelay or
// OwnersStopped.
type RestoreOptions struct {
	// From is the file of the backup.
	From string
	// Dir is the data directory to create. It must be empty, or not exist.
	Dir string
	// RecoveryDelay is the recovery delay of the server's first run: until it has passed, the server
	// grants nothing new. It must be at least TTL + transition of each lease that was granted after
	// the backup, and at most MaxRecoveryDelay.
	RecoveryDelay time.Duration
	// OwnersStopped says that no owner works any more. Then there is no recovery delay, and each
	// lease gets a new token.
	OwnersStopped bool

	// FS is the file system; nil means the operating system's.
	FS vfs.FS
	// Wall is the wall clock; nil means the machine's.
	Wall func() time.Time
	// Logger gets Pebble's messages; nil means slog.Default.
	Logger *slog.Logger
}

// Restored is the result of Restore.
type Restored struct {
	BackupInfo
	Floor uint64 // largest token that counts as used; the next tenure gets a larger one
}

// Restore writes a data directory with the contents of a backup. It checks the whole backup first.
// After an error, the end of ctx, or a crash, Dir has no store that a server would open. Errors are
// one line each.
//
// After the backup, the old server may have granted leases, tokens and event numbers that the
// backup lacks. So the next token and event number are above the wall clock in microseconds. No
// server reaches such numbers by counting. Every lease begins anew, in full, at the first start of
// a server. The caller chooses RecoveryDelay or OwnersStopped as the protection against leases that
// the backup lacks.
//
// With RecoveryDelay the leases keep their tokens, so that their owners can renew them. The delay is
// at least as long as each lease, so a lease that its owner does not renew ends before the first
// new grant.
//
// With OwnersStopped, Restore gives each lease a new token, and the server refuses the old one.
// Otherwise a lease of the backup could have a smaller token than a tenure that the old server
// began after the backup.
func Restore(ctx context.Context, o RestoreOptions) (*Restored, error) {
	o.FS = cmp.Or(o.FS, vfs.Default)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	f, err := openBackup(o.FS, o.From)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := newRestore(&o, f)
	if err != nil {
		return nil, err
	}
	if err := r.run(ctx); err != nil {
		return nil, fmt.Errorf("restore to %s: %w", o.Dir, OneLine{err})
	}
	return &Restored{*f.info, r.meta.Token}, nil
}

func (o *RestoreOptions) check() error {
	switch {
	case o.Dir == "":
		return errors.New("no data directory given")
	case o.OwnersStopped == (o.RecoveryDelay != 0):
		return errors.New("either give a recovery delay or say that the owners are stopped")
	case o.RecoveryDelay < 0 || o.RecoveryDelay > MaxRecoveryDelay:
		return fmt.Errorf("the recovery delay must be above 0 and at most %v", MaxRecoveryDelay)
	}
	return nil
}

type restore struct {
	*RestoreOptions
	from *backupFile
	meta meta
}

// newRestore makes the meta row. The other rows depend on it.
func newRestore(o *RestoreOptions, f *backupFile) (*restore, error) {
	if err := f.checkDelay(o.RecoveryDelay); err != nil {
		return nil, err
	}
	now := o.Wall()
	if now.Before(f.info.Taken) {
		return nil, fmt.Errorf("%w: it shows %s, the backup was taken at %s", ErrClock,
			now.UTC().Format(time.RFC3339), f.info.Taken.UTC().Format(time.RFC3339))
	}
	// No lease of the backup has a later generation than f.meta. The new epoch has no Boot, so it
	// matches no boot. So the first start of a server begins the next generation, and all leases of
	// earlier generations begin anew.
	m := meta{
		epoch:  epoch{Generation: f.meta.Generation},
		Seq:    max(f.meta.Seq, simba.Seq(now.UnixMicro())),
		Token:  max(f.meta.Token, uint64(now.UnixMicro())),
		Delay:  o.RecoveryDelay,
		Latest: f.meta.Latest,
	}
	_, _ = rand.Read(m.Store[:]) // it never fails
	return &restore{RestoreOptions: o, from: f, meta: m}, nil
}

// checkDelay returns an error if the recovery delay is shorter than a known lease. If the server
// ran in Async, the meta row of the backup states a recovery delay too. That delay covers the
// longest lease that the server had granted until the backup.
func (f *backupFile) checkDelay(delay time.Duration) error {
	switch i := f.info; {
	case delay == 0:
	case delay < i.Longest:
		return fmt.Errorf("a recovery delay of %v is too short: %w: mutex %q has %v", delay, ErrDelayShort, i.LongestOf, i.Longest)
	case delay < f.meta.Delay:
		return fmt.Errorf("a recovery delay of %v is too short: %w: the server had granted a lease of %v", delay, ErrDelayShort, f.meta.Delay)
	}
	return nil
}

// run writes the directory. The file SIMBA-RESP comes last: without it no server opens the
// directory.
func (r *restore) run(ctx context.Context) error {
	if err := r.checkEmpty(); err != nil {
		return err
	}
	if err := makeDir(r.FS, r.Dir); err != nil {
		return err
	}
	if err := checkSpace(r.FS, r.Dir, minFree+2*uint64(r.from.info.Size)); err != nil {
		return err
	}
	lock, err := lockDir(r.FS, r.Dir)
	if err != nil {
		return err
	}
	err = r.checkEmpty() // another process may have been faster
	if err == nil {
		if err = r.write(ctx, lock); err == nil {
			err = signStore(r.FS, r.Dir)
		}
		if err != nil {
			r.clean()
		}
	}
	return errors.Join(err, lock.Close())
}

// checkEmpty returns an error if the directory has files, apart from its lock and leftovers.
func (r *restore) checkEmpty() error {
	names, err := r.names()
	switch {
	case err != nil || len(names) == 0:
		return err
	case slices.Contains(names, signName):
		return fmt.Errorf("the directory is %w: it is a data directory already", ErrNotEmpty)
	default:
		return fmt.Errorf("the directory is %w: it has %q; name one that is empty or does not exist", ErrNotEmpty, names[0])
	}
}

// names lists the files of the directory, except its lock and leftovers.
func (r *restore) names() ([]string, error) {
	if _, err := r.FS.Stat(r.Dir); isGone(err) {
		return nil, nil
	}
	names, err := r.FS.List(r.Dir)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == lockName || isLeftover(name) })
	slices.Sort(names)
	return names, nil
}

// clean removes what was written. It ignores errors: the user then finds a directory that is not
// empty.
func (r *restore) clean() {
	names, _ := r.names()
	for _, name := range names {
		_ = r.FS.RemoveAll(path.Join(r.Dir, name))
	}
}

// write writes the store. If a write fails, Pebble's goroutines stay blocked: see strictFS.
func (r *restore) write(ctx context.Context, lock *pebble.Lock) error {
	fault := newFault(nil)
	o := &Options{Dir: r.Dir, FS: r.FS, Logger: r.Logger}
	var err error
	failure := fault.guard(func() {
		var db *pebble.DB
		if db, err = pebble.Open(r.Dir, pebbleOptions(o, lock, fault, new(progress))); err == nil {
			err = errors.Join(r.fill(ctx, db), db.Close())
		}
	})
	if failure != nil {
		return failure
	}
	return errors.Join(pebbleError(err), fault.cause())
}

// restoreBatch is how many bytes of rows are written together.
const restoreBatch = 1 << 20

// fill writes the rows to Pebble.
func (r *restore) fill(ctx context.Context, db *pebble.DB) error {
	b := db.NewBatch()
	defer b.Close()
	return r.from.copyTo(ctx, db, b, restoreBatch, &r.meta, func(l *simba.Lease, generation uint64) uint64 {
		if r.OwnersStopped {
			r.meta.Token++
			l.Token = r.meta.Token
		}
		return generation
	})
}

// copyTo adds the rows to a batch, the leases as changed by change, which returns their generation. Then
// it applies the batch as apply does. It applies rows earlier whenever the batch has limit bytes.
func (f *backupFile) copyTo(
	ctx context.Context, db *pebble.DB, b *pebble.Batch, limit int, m *meta, change func(l *simba.Lease, generation uint64) uint64,
) error {
	err := f.rows(func(key, value []byte) error {
		switch key[0] {
		case metaKey[0]:
			return nil
		case leasePrefix:
			l, generation, err := decodeLeaseRow(key, value)
			if err != nil {
				return err
			}
			value = appendLeaseRow(nil, change(&l, generation), &l)
		}
		if err := b.Set(key, value, nil); err != nil || b.Len() < limit {
			return err
		}
		if err := db.Apply(b, pebble.NoSync); err != nil {
			return err
		}
		b.Reset()
		return ctx.Err()
	})
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return err
	}
	return apply(db, b, m)
}
