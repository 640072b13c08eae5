package persist

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Open opens the store in o.Dir, and returns with it what earlier runs left. Its
// errors are one line each, and can be matched with those of this package.
//
// After an error nothing is left open, with one exception: if a write to the
// store failed, the directory stays locked until the process ends.
func Open(o Options) (*Store, *Recovered, error) {
	if err := o.ensureDefaults(); err != nil {
		return nil, nil, openError(o.Dir, err)
	}
	lock, err := claimDir(&o)
	if err != nil {
		return nil, nil, openError(o.Dir, oneLine{err})
	}
	s, r, err := open(&o, lock)
	if err != nil {
		return nil, nil, openError(o.Dir, oneLine{err})
	}
	return s, r, nil
}

// open opens the store, and releases the lock if it cannot.
func open(o *Options, lock *pebble.Lock) (*Store, *Recovered, error) {
	type outcome struct {
		store     *Store
		recovered *Recovered
		err       error
	}
	fault := newFault(o.Fatal)
	opened := make(chan outcome, 1)
	// The goroutine is left behind when a write fails: it will never come back.
	go func() {
		s, r, err := openPebble(o, lock, fault)
		opened <- outcome{s, r, err}
	}()
	select {
	case got := <-opened:
		if got.err != nil {
			_ = lock.Close() // the error at hand says more
			return nil, nil, got.err
		}
		err := fault.arm()
		if err == nil {
			got.store.beginWatch()
		}
		return got.store, got.recovered, err
	case <-fault.stopped:
		return nil, nil, fault.cause()
	}
}

func openPebble(o *Options, lock *pebble.Lock, fault *fault) (*Store, *Recovered, error) {
	log := new(atomic.Pointer[string])
	db, err := pebble.Open(o.Dir, pebbleOptions(o, lock, fault, log))
	if err != nil {
		return nil, nil, pebbleError(err)
	}
	fresh, err := isFresh(db, o)
	if err == nil && fresh {
		// The first log of a new Pebble is of an old format, in which damage cannot be
		// told from the torn end that a crash leaves. A second Open begins a new one.
		if err = db.Close(); err == nil {
			db, err = pebble.Open(o.Dir, pebbleOptions(o, lock, fault, log))
		}
		if err != nil {
			return nil, nil, pebbleError(err)
		}
	}
	if err != nil {
		_ = db.Close() // the error at hand says more
		return nil, nil, err
	}
	s := newStore(o, db, lock, fault)
	r, err := s.begin(o)
	if err == nil && o.FS == vfs.Default { // nobody removes what is in memory
		s.watch, err = newWatch(o.Dir, log)
	}
	if err != nil {
		_ = db.Close() // as above
		return nil, nil, err
	}
	if fresh {
		if err := signStore(o.FS, o.Dir); err != nil {
			_ = db.Close()
			return nil, nil, err
		}
	}
	return s, r, nil
}

// isFresh reports whether nothing was ever stored. A store that is empty although
// the directory's sign says that there was one has lost everything.
func isFresh(db *pebble.DB, o *Options) (bool, error) {
	m, err := readMeta(db)
	if err != nil || m.Generation != 0 {
		return false, err
	}
	held, err := heldStore(o.FS, o.Dir)
	if held {
		err = fmt.Errorf("%w: the store that was here is gone", ErrCorrupt)
	}
	return true, err
}

func newStore(o *Options, db *pebble.DB, lock *pebble.Lock, fault *fault) *Store {
	s := &Store{
		mode:      o.Mode,
		now:       o.Now,
		bootNow:   o.Boot.Now,
		slept:     o.slept,
		timeout:   o.CommitTimeout,
		syncEvery: o.SyncEvery,
		yield:     o.Yield,
		db:        db,
		lock:      lock,
		fault:     fault,
		next:      newGroup(db),
		unwatch:   make(chan struct{}),
	}
	s.flush = stoppedTimer(s.flushNext)
	s.watchdog = stoppedTimer(func() {
		s.fault.trip(fmt.Errorf("commit: %w: %v", errCommitTimeout, s.timeout))
	})
	return s
}

// stoppedTimer returns a timer for Reset. One that runs would keep what f uses in memory, also of an Open that failed.
func stoppedTimer(f func()) *time.Timer {
	t := time.AfterFunc(math.MaxInt64, f)
	t.Stop()
	return t
}

// begin reads what earlier runs left and makes durable that this one has begun:
// from here on its floors hold, and the leases of another boot begin anew.
func (s *Store) begin(o *Options) (*Recovered, error) {
	m, err := readMeta(s.db)
	if err != nil {
		return nil, err
	}
	events, err := s.recoverHistory(o.HistoryLen)
	if err != nil {
		return nil, err
	}
	if m.format != 0 && m.format < 3 {
		if err := s.renameKeys(); err != nil {
			return nil, err
		}
	}
	r := &Recovered{Seq: m.Seq, Token: m.Token, Quiet: m.Quiet, History: events}
	now := s.now()
	if !m.isOf(o.Boot, s.bootNow()) {
		warnOfBoot(o, &m)
		m.Boot = o.Boot.ID
		m.Generation++
		m.Rebased, m.RebasedAt = now, o.Wall().UnixMilli()
	}
	s.template = m
	s.inherited, s.quietUntil = m.Quiet, now.Add(m.Quiet)
	s.appended = floors{seq: m.Seq, token: m.Token}
	s.tellable.Store(uint64(m.Seq))
	r.Leases = s.leases

	s.next.wanted = true
	start, g := time.Now(), s.take()
	if err := s.apply(g); err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	s.publish(g, time.Since(start))
	return r, nil
}

// warnOfBoot logs why leases begin anew, unless the machine was simply booted.
func warnOfBoot(o *Options, m *meta) {
	switch {
	case o.Boot.ID == "":
		o.Logger.Warn("the boot of the machine is unknown: each start counts as one after a reboot, and every lease gets its full windows again",
			"err", o.Boot.Unknown)
	case m.Boot == o.Boot.ID:
		o.Logger.Warn("the clock of the machine lies behind what the data directory says: every lease gets its full windows again",
			"behind", m.Latest.Sub(o.Boot.Now()))
	}
}

// pebbleOptions tune Pebble for what it is here: a log that is read once, at the
// start. What is not set has Pebble's default.
func pebbleOptions(o *Options, lock *pebble.Lock, fault *fault, log *atomic.Pointer[string]) *pebble.Options {
	return &pebble.Options{
		FS:            strictFS{FS: o.FS, fault: fault, log: log},
		Lock:          lock,
		Logger:        pebbleLogger{Logger: o.Logger, fault: fault},
		EventListener: fault.listener(),

		// The newest of the Pebble that go.mod names. It is spelled out since a
		// newer one must come with a new version of ours that says so: there is no
		// way back.
		FormatMajorVersion: pebble.FormatValueSeparation,

		// A start replays up to one of them, in some 0.05 s. Measured with locks that
		// are released soon, which leave the most behind, 16 and 64 MiB are no faster,
		// and take 38 and 152 MiB on disk where this takes 10.
		MemTableSize: 4 << 20,
		// Whatever is written spans all leases, from the history's keys to the meta
		// record's, so each compaction of level 0 rewrites every lease: 16 MB and 0.5 s
		// of a processor for a million, beside the commits or beside the start that set
		// it off. So they come after 8 memtables, not 2 as by default, and writes stop
		// for them later in proportion. To read the more layers at the start takes no
		// time that could be measured, and their locks that were released no disk.
		L0CompactionThreshold: 16,
		L0StopWritesThreshold: 32,
		// While a Store runs only compactions read, and each block once.
		CacheSize: 1 << 20,
	}
}

// readMeta returns the meta record, the zero one from a store that is new.
func readMeta(db *pebble.DB) (meta, error) {
	value, closer, err := db.Get([]byte(metaKey))
	if errors.Is(err, pebble.ErrNotFound) {
		return meta{}, checkEmpty(db)
	}
	if err != nil {
		return meta{}, pebbleError(err)
	}
	m, err := decodeMeta(value)
	return m, errors.Join(recordError(err), closer.Close())
}

// checkEmpty returns ErrCorrupt unless there is no record at all.
func checkEmpty(db *pebble.DB) error {
	it, err := db.NewIter(nil)
	if err != nil {
		return pebbleError(err)
	}
	if it.First() {
		err = fmt.Errorf("%w: there is no meta record", ErrCorrupt)
	}
	return errors.Join(err, it.Close())
}
