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

// A row that another transaction holds must not take the connections that other mutexes
// need. So a statement that wants a row finds out at once whether it is held: on MariaDB
// by a lock wait of 0. Then it waits at the database, for lockWait, in one of a few slots
// only. While they are taken it tries again now and then.
//
// MySQL knows no lock wait below one second. There a statement finds out after that
// second, so a row that was locked just now takes its mutex' two connections for so long,
// once: a later statement for that row begins with a slot. The row counts as locked until a
// statement gets it, or until nobody has asked for it for a while.

const (
	// lockWait is for how long a statement waits for a row that another transaction
	// holds, in whole seconds as the database counts them.
	lockWait = time.Second
	// longestLockWait is how long such a wait can take: the database looks once a second
	// whether it has been too long.
	longestLockWait = 2 * lockWait
	// maxLockWaits is how many statements may wait so: a quarter of the pool.
	maxLockWaits = maxConns / 4
	// quickTries is how often a statement is tried that must not wait for a row.
	quickTries = 6

	// lockWaitSetting is the lock wait of a connection; patiently stands before a
	// statement that waits for lockWait. MariaDB reads what is between /*M! and */.
	lockWaitSetting = "innodb_lock_wait_timeout = 1 /*M! , innodb_lock_wait_timeout = 0 */"
	waitPrefix      = "/*M! SET STATEMENT innodb_lock_wait_timeout = 1 FOR */ "
)

// errLocked is why a request fails that could not wait for its row.
var errLocked = errors.New("another transaction holds the mutex' row in the database, and too many requests wait for such rows")

// lockedFor is for how long a row counts as locked after the last wait in vain, or after
// the last that queued for it has left.
const lockedFor = 2 * lockWait

// lockWaits bounds how many statements wait for rows.
type lockWaits struct {
	slots         chan struct{}
	minTimeLeft   time.Duration // a request with less time left does not begin to wait for a locked row
	alwaysWaits   bool          // the server makes every statement wait that meets a locked row
	deadlineFirst bool          // a request's time ends before the server reports a wait in vain

	mu     sync.Mutex // guards what follows, and every lockedRow
	locked map[string]*lockedRow
}

// lockedRow is a row that was waited for in vain.
type lockedRow struct {
	until  time.Time     // it counts as locked until then
	queued int           // how many want a slot for it, or have one: it counts as locked while there are any
	gained chan struct{} // closed when a statement gets the row
}

func (r *lockedRow) isLocked() bool { return r != nil && (r.queued > 0 || time.Now().Before(r.until)) }

// newLockWaits takes the time limit of requests.
func newLockWaits(timeout time.Duration) *lockWaits {
	return &lockWaits{
		slots:         make(chan struct{}, maxLockWaits),
		minTimeLeft:   min(lockWait, timeout/2),
		deadlineFirst: timeout <= longestLockWait,
		locked:        make(map[string]*lockedRow),
	}
}

// askServer asks whether the server knows a lock wait of 0.
func (w *lockWaits) detect(ctx context.Context, db *sql.DB) error {
	var seconds int
	err := queryRow(ctx, db, []any{&seconds}, "SELECT @@SESSION.innodb_lock_wait_timeout")
	w.alwaysWaits = seconds > 0
	return err
}

// isLocked reports whether another transaction is known to hold the mutex' row.
func (w *lockWaits) isLocked(mutex string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.locked[mutex].isLocked()
}

// inVain takes note of a wait in vain.
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

// got takes note that nobody else holds the row. Who queues for it need not any more.
func (w *lockWaits) noteGained(mutex string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.locked[mutex]; r != nil {
		close(r.gained)
		delete(w.locked, mutex)
	}
}

// queue takes note that a statement wants a slot, until leave is called. A row that
// counts as locked does so for that long. gained is closed when another statement gets it.
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

// run runs a statement that wants the row of a mutex, until it no longer loses to other
// transactions or the context ends. The statement begins with the text that it is given.
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
			slots = nil // its wait would be cut off, and go on at the database
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

// inTurn waits for a slot and tries a statement in it. It returns without having tried
// when it is time to do so again without a slot, or when the context ends.
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
			time.AfterFunc(lockWait-took, func() { <-w.slots }) // until then it goes on at the database
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

// briefKey is the context key of brief.
type withoutLockWaitKey struct{}

// brief returns a context whose statements do not wait for locked rows: those of what
// the engine does by itself, which can be done later and holds up other mutexes.
func withoutLockWait(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutLockWaitKey{}, true)
}

func isWithoutLockWait(ctx context.Context) bool { return ctx.Value(withoutLockWaitKey{}) != nil }

// overdueKey is the context key of whenOverdue.
type overdueKey struct{}

// whenOverdue returns a context that has f called when a statement takes longer than a
// wait for a row can: it is on a slow link, or on a connection that is dead.
func withOverdue(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, overdueKey{}, f)
}
