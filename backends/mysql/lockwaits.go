package mysql

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"
)

// Statements that wait for a locked row must not take the connections that other mutexes need. On
// MariaDB a statement first runs with a lock wait of 0. If its row is locked, the statement takes
// one of a few slots and waits at the database for lockWait. While no slot is free, it retries from
// time to time.
//
// MySQL's shortest lock wait is one second, so a statement learns only after a second that its row
// is locked. When a row becomes locked, up to two statements (see mutexState) can spend that second
// without a slot. Later statements for the row take a slot first. The row counts as locked until a
// statement gets it, or until no statement has waited for it during the time lockedFor.

const (
	// lockWait is how long a statement waits for a locked row. The database counts whole seconds.
	lockWait = time.Second
	// longestLockWait is how long such a wait can take, because the database checks only once a
	// second.
	longestLockWait = 2 * lockWait
	// maxLockWaits is how many statements may wait for locked rows at a time.
	maxLockWaits = maxConns / 4
	// quickTries is how often a statement that must not wait for a row is tried.
	quickTries = 6

	// lockWaitSetting sets the lock wait of a connection. waitPrefix precedes a statement that
	// waits for lockWait. Only MariaDB reads the text between /*M! and */.
	lockWaitSetting = "innodb_lock_wait_timeout = 1 /*M! , innodb_lock_wait_timeout = 0 */"
	waitPrefix      = "/*M! SET STATEMENT innodb_lock_wait_timeout = 1 FOR */ "
)

// errLocked is returned when a request could not wait for its locked row.
var errLocked = errors.New("another transaction has locked the mutex's row in the database, and too many requests wait for such rows")

// lockedFor is how long a row counts as locked. The time begins when a lock wait for the row times
// out, and again when a request leaves the row's queue.
const lockedFor = 2 * lockWait

// lockWaits bounds how many statements wait for locked rows.
type lockWaits struct {
	slots         chan struct{}
	minTimeLeft   time.Duration // a request with less time left does not wait for a locked row
	alwaysWaits   bool          // the server has no lock wait of 0, so every statement waits
	deadlineFirst bool          // a request's deadline comes before the server's lock wait timeout

	mu     sync.Mutex // guards the fields below, and every lockedRow
	locked map[string]*lockedRow
}

// lockedRow is a row for which a lock wait has timed out.
type lockedRow struct {
	until time.Time // the row counts as locked until then
	// queued is how many requests wait for a slot or have one. If there is any, the row counts as
	// locked.
	queued int
	gained chan struct{} // closed when a statement gets the row
}

func (r *lockedRow) isLocked() bool { return r != nil && (r.queued > 0 || time.Now().Before(r.until)) }

func newLockWaits(timeout time.Duration) *lockWaits {
	return &lockWaits{
		slots:         make(chan struct{}, maxLockWaits),
		minTimeLeft:   min(lockWait, timeout/2),
		deadlineFirst: timeout <= longestLockWait,
		locked:        make(map[string]*lockedRow),
	}
}

func (w *lockWaits) detect(ctx context.Context, db *sql.DB) error {
	var seconds int
	err := queryRow(ctx, db, []any{&seconds}, "SELECT @@SESSION.innodb_lock_wait_timeout")
	w.alwaysWaits = seconds > 0
	return err
}

func (w *lockWaits) isLocked(mutex string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.locked[mutex].isLocked()
}

func (w *lockWaits) noteTimeout(mutex string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.locked, func(_ string, r *lockedRow) bool { return !r.isLocked() })
	r := w.locked[mutex]
	if r == nil {
		r = &lockedRow{gained: make(chan struct{})}
		w.locked[mutex] = r
	}
	r.until = time.Now().Add(lockedFor)
}

// noteGained records that a statement got the row. Statements that wait for a slot then try without
// one.
func (w *lockWaits) noteGained(mutex string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.locked[mutex]; r != nil {
		close(r.gained)
		delete(w.locked, mutex)
	}
}

// enqueue records that a statement waits for a slot or has one. It does nothing if the row does not
// count as locked. Otherwise the row counts as locked at least until the caller calls leave, or
// until a statement gets the row. gained is closed when a statement gets the row.
func (w *lockWaits) enqueue(mutex string) (gained <-chan struct{}, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.locked[mutex]
	if !r.isLocked() {
		return nil, func() {}
	}
	r.queued++
	return r.gained, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		r.queued--
		r.until = time.Now().Add(lockedFor)
	}
}

// run runs a statement that locks the row of a mutex. It retries after conflicts with other
// transactions until the context ends. The statement must start with the prefix that it receives.
func (w *lockWaits) run(ctx context.Context, mutex string, statement func(prefix string) error) error {
	var err error = errLocked
	try := func(prefix string) (lost bool, took time.Duration) {
		if f, ok := ctx.Value(overdueKey{}).(func()); ok {
			defer time.AfterFunc(longestLockWait, f).Stop()
		}
		sent := time.Now()
		err = statement(prefix)
		took = time.Since(sent)
		lost = isConflict(err)
		waits := w.alwaysWaits || prefix != ""
		switch {
		case err == nil:
			w.noteGained(mutex)
		case waits && errorNumber(err) == errLockWait,
			w.alwaysWaits && w.deadlineFirst && ctx.Err() != nil && took >= lockWait/2:
			w.noteTimeout(mutex)
		}
		return lost, took
	}
	for i := 1; ; i++ {
		locked := w.isLocked(mutex)
		if !locked || !w.alwaysWaits {
			if lost, _ := try(""); !lost {
				return err
			}
		}
		slots, again := w.slots, (<-chan time.Time)(nil)
		if !w.alwaysWaits {
			again = time.After(rand.N(time.Duration(min(i, 50)) * 2 * time.Millisecond))
		}
		if deadline, ok := ctx.Deadline(); ok && locked && again != nil && time.Until(deadline) < w.minTimeLeft {
			slots = nil // the wait at the database would outlast ctx
		}
		if isWithoutLockWait(ctx) {
			if again == nil || i == quickTries {
				return err
			}
			slots = nil
		}
		lost, ended := w.tryWithSlot(ctx, mutex, slots, again, try)
		if ended || !lost {
			return err
		}
	}
}

// tryWithSlot waits for a slot and runs the statement in it. It returns without running the
// statement when it is time to try without a slot, or when the context ends. lost = the statement
// must run again; ended = the context has ended.
func (w *lockWaits) tryWithSlot(ctx context.Context, mutex string, slots chan struct{}, again <-chan time.Time,
	try func(prefix string) (lost bool, took time.Duration),
) (lost, ended bool) {
	var gained <-chan struct{}
	if slots != nil {
		var leave func()
		gained, leave = w.enqueue(mutex)
		defer leave()
	}
	select {
	case slots <- struct{}{}:
		lost, took := try(waitPrefix)
		if ctx.Err() != nil && took < lockWait {
			// At the database the wait may go on until lockWait has passed.
			time.AfterFunc(lockWait-took, func() { <-w.slots })
		} else {
			<-w.slots
		}
		return lost, false
	case <-gained:
	case <-again:
	case <-ctx.Done():
		return false, true
	}
	return true, false
}

type withoutLockWaitKey struct{}

// withoutLockWait returns a context whose statements do not wait for locked rows. Background work
// uses it: it can be done later, and its waits would delay other mutexes.
func withoutLockWait(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutLockWaitKey{}, true)
}

func isWithoutLockWait(ctx context.Context) bool { return ctx.Value(withoutLockWaitKey{}) != nil }

type overdueKey struct{}

// withOverdue returns a context that calls f when a statement takes longer than any lock wait. The
// statement's connection is then slow or broken.
func withOverdue(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, overdueKey{}, f)
}
