package persist

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/persist/journal"
)

const journalName = "journal"

// Open opens the store in o.Dir, and returns the state from earlier runs. Each of its errors is one
// line. If the reason is one of the errors of this package, errors.Is finds it.
//
// After an error nothing is left open, with one exception: if a write to the store failed, the
// directory stays locked until the process ends.
func Open(o Options) (s *Store, r *Recovered, err error) {
	err = openDir(&o, func(f *files) (err error) {
		s, r, err = f.recover()
		return err
	})
	return s, r, err
}

// openDir opens the files in o.Dir, and then calls begin. The error is that of Open.
func openDir(o *Options, begin func(*files) error) error {
	err := o.ensureDefaults()
	if err == nil {
		err = open(o, begin)
	}
	return describe("open", "data directory "+o.Dir, err)
}

// open claims the directory and opens the files. After an error, it releases the lock, unless a write
// has failed.
func open(o *Options, begin func(*files) error) error {
	lock, err := claimDir(o)
	if err != nil {
		return err
	}
	fault := newFault(o.Fatal)
	var f *files
	if failure := fault.guard(func() { f, err = openFiles(o, lock, fault, begin) }); failure != nil {
		return failure
	}
	if err != nil {
		_ = lock.Close() // the error at hand says more
		return err
	}
	if err = fault.arm(); err == nil {
		f.beginBackground()
	}
	return err
}

// openFiles opens the checkpoint and the journal, notes the present boot, and calls begin.
func openFiles(o *Options, lock *pebble.Lock, fault *fault, begin func(*files) error) (f *files, err error) {
	progress := new(progress)
	db, err := pebble.Open(o.Dir, pebbleOptions(o, lock, fault, progress))
	if err != nil {
		return nil, pebbleError(err)
	}
	defer func() {
		if err != nil {
			_ = db.Close() // the error at hand says more
		}
	}()
	m, err := readMeta(db)
	if err != nil {
		return nil, err
	}
	held, err := heldStore(o.FS, o.Dir)
	if err != nil {
		return nil, err
	}
	isNew := m.Store == [16]byte{}
	if isNew {
		if held {
			return nil, fmt.Errorf("%w: the store that was here is gone", ErrCorrupt)
		}
		if err := create(db, &m, o); err != nil {
			return nil, err
		}
	}
	j, err := journal.Open(journal.Options{
		FS:          o.FS,
		Dir:         o.FS.PathJoin(o.Dir, journalName),
		StoreID:     m.Store,
		From:        m.Index,
		Segment:     m.Segment,
		SegmentSize: o.SegmentSize,
	})
	if err != nil {
		return nil, journalError(err)
	}
	f = &files{
		created:     isNew,
		options:     o,
		fault:       fault,
		lock:        lock,
		db:          db,
		journal:     j,
		checkpoints: newCheckpointer(o, j, newCheckpoint(db, m, o.HistoryLen), fault, progress),
		ending:      make(chan struct{}),
	}
	f.watchdog = stoppedTimer(f.hangs)
	err = begin(f)
	if err == nil && o.FS == vfs.Default { // only real files can be removed
		f.watch, err = newWatch(o.Dir, j.Current)
	}
	if err == nil && !held {
		err = signStore(o.FS, o.Dir)
	}
	if err != nil {
		_ = j.Close() // the error at hand says more
		return nil, err
	}
	return f, nil
}

// beginEpoch makes the epoch of the present boot durable, if the last run was on another boot.
func (f *files) beginEpoch() error {
	o, c := f.options, f.checkpoints.checkpoint
	if m := &c.meta; !m.isOf(o.Boot, o.Boot.Now()) {
		warnOfBoot(o, m)
		m.epoch = epoch{o.Boot.ID, m.Generation + 1, o.Now(), o.Wall().UnixMilli()}
		m.Latest = o.Boot.Now()
		if err := c.write(); err != nil {
			return pebbleError(err)
		}
	}
	f.epoch = c.meta.epoch
	return nil
}

// beginBackground starts the goroutines that run until close, or until the store fails.
func (f *files) beginBackground() {
	f.background.Go(func() { f.checkpoints.follow(f.ending) })
	if f.watch != nil {
		f.background.Go(func() { f.watch.run(f.ending, f.fault) })
	}
}

// warnOfBoot logs why leases begin anew, unless the machine was simply booted.
func warnOfBoot(o *Options, m *meta) {
	switch {
	case o.Boot.ID == "":
		o.Logger.Warn("the boot of the machine is unknown: each start counts as a start after a reboot, and every lease gets its full windows again",
			"err", o.Boot.Unknown)
	case m.Boot == o.Boot.ID:
		o.Logger.Warn("the clock of the machine lies behind what the data directory says: every lease gets its full windows again",
			"behind", m.Latest.Sub(o.Boot.Now()))
	}
}

// pebbleOptions tune Pebble for rows that are read once, at the start.
func pebbleOptions(o *Options, lock *pebble.Lock, fault *fault, progress *progress) *pebble.Options {
	return &pebble.Options{
		FS:            strictFS{FS: o.FS, fault: fault, progress: progress},
		Lock:          lock,
		Logger:        pebbleLogger{Logger: o.Logger, fault: fault},
		EventListener: fault.listener(),

		// The newest format of the Pebble version in go.mod. Pebble cannot go back to an older
		// format. So only a new version of simba-resp may choose a newer one.
		FormatMajorVersion: pebble.FormatValueSeparation,

		DisableWAL: true, // the journal is the log
		// Each checkpoint spans all keys, so each compaction of level 0 rewrites every lease. For a
		// million leases that takes 0.5 s of a processor. So Pebble compacts after 8 checkpoints,
		// not after 2 as by default. The threshold at which writes stop is larger in proportion.
		L0CompactionThreshold: 16,
		L0StopWritesThreshold: 32,
		// While a Store runs, compactions and backups read each block once.
		CacheSize: 1 << 20,
	}
}

// create writes the meta row of a new store. The row is durable before the journal exists.
func create(db *pebble.DB, m *meta, o *Options) error {
	if m.Delay = o.RecoveryDelay; !o.replica { // a cluster's floors are entries
		floor, err := Floor(o.Wall())
		if err != nil {
			return err
		}
		m.Seq, m.Token = simba.Seq(floor), floor
	}
	_, _ = rand.Read(m.Store[:]) // it never fails
	err := db.Set([]byte(metaKey), appendMeta(nil, m), pebble.NoSync)
	return pebbleError(errors.Join(err, db.Flush()))
}

// firstFloor is the earliest time that Floor accepts. A machine that shows an earlier time has not
// set its clock.
var firstFloor = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// Floor returns the number above which tokens and event numbers begin if no earlier ones are known:
// the time of the wall clock in microseconds. Thus they are larger than all numbers of a store that
// was lost. The error is ErrClock if the clock shows a time before 2026.
func Floor(wall time.Time) (uint64, error) {
	if wall.Before(firstFloor) {
		return 0, fmt.Errorf("%w: it shows %s, and tokens begin at the time; set the clock", ErrClock,
			wall.UTC().Format(time.RFC3339))
	}
	return uint64(wall.UnixMicro()), nil
}

// readMeta returns the meta row, or the zero value if the store is new.
func readMeta(db *pebble.DB) (meta, error) {
	value, closer, err := db.Get([]byte(metaKey))
	if errors.Is(err, pebble.ErrNotFound) {
		return meta{}, checkEmpty(db)
	}
	if err != nil {
		return meta{}, pebbleError(err)
	}
	m, err := decodeMeta(value)
	return m, errors.Join(sortError(err), closer.Close())
}

// checkEmpty returns ErrCorrupt if there is any row.
func checkEmpty(db *pebble.DB) error {
	it, err := db.NewIter(nil)
	if err != nil {
		return pebbleError(err)
	}
	if it.First() {
		err = fmt.Errorf("%w: there is no meta row", ErrCorrupt)
	}
	return errors.Join(err, it.Close())
}
