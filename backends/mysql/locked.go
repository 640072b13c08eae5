package mysql

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// A row that another transaction holds must not take the connections that other mutexes
// need. So a statement that wants a row finds out at once whether it is held: on MariaDB
// by a lock wait of 0. Then it waits at the database, for lockWait at a time, in one of a
// few slots only. While they are taken it tries again now and then.
//
// MySQL knows no lock wait below one second. There a statement finds out after that
// second, so a row that was locked just now takes its mutex' two connections for so long,
// once: the row is known to be locked then, and who wants it begins with a slot.

const (
	// lockWait is for how long a statement waits for a row that another transaction
	// holds, in whole seconds as the database counts them.
	lockWait = time.Second
	// maxLockWaits is how many statements may wait so: a quarter of the pool.
	maxLockWaits = maxConns / 4
	// quickTries is how often a statement is tried that must not wait for a row.
	quickTries = 6

	// lockWaitSetting is the lock wait of a connection; patiently stands before a
	// statement that waits for lockWait. MariaDB reads what is between /*M! and */.
	lockWaitSetting = "innodb_lock_wait_timeout = 1 /*M! , innodb_lock_wait_timeout = 0 */"
	patiently       = "/*M! SET STATEMENT innodb_lock_wait_timeout = 1 FOR */ "
)

// errLocked is why a request fails that could not wait for its row.
var errLocked = errors.New("another transaction holds the mutex' row in the database, and too many requests wait for such rows")

// lockWaits bounds how many statements wait for rows.
type lockWaits struct {
	slots chan struct{}

	mu     sync.Mutex     // guards what follows
	locked map[string]int // by mutex: how many statements have waited for its row in vain, and go on
}

func newLockWaits() *lockWaits {
	return &lockWaits{slots: make(chan struct{}, maxLockWaits), locked: make(map[string]int)}
}

// isLocked reports whether another transaction is known to hold the mutex' row.
func (w *lockWaits) isLocked(mutex string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.locked[mutex] > 0
}

func (w *lockWaits) add(mutex string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.locked[mutex] += n; w.locked[mutex] == 0 {
		delete(w.locked, mutex)
	}
}

// run runs a statement that wants the row of a mutex, until it no longer loses to other
// transactions. The statement is to begin with the text that it is given.
func (w *lockWaits) run(ctx context.Context, mutex string, statement func(patience string) error) error {
	err := error(errLocked)
	quick, known := !w.isLocked(mutex), false
	for i := 1; ; i++ {
		waited := !quick
		if quick {
			sent := time.Now()
			if err = statement(""); !isConflict(err) {
				return err
			}
			waited = time.Since(sent) >= lockWait/2
		}
		if isBrief(ctx) && (waited || i == quickTries) {
			return err
		}
		quick = !waited
		if waited && !known {
			known = true
			w.add(mutex, 1)
			defer w.add(mutex, -1)
		}
		var again <-chan time.Time
		if quick {
			again = time.After(rand.N(time.Duration(min(i, 50)) * 2 * time.Millisecond))
		}
		slots := w.slots
		if isBrief(ctx) {
			slots = nil
		}
		select {
		case slots <- struct{}{}:
			sent := time.Now()
			err = statement(patiently)
			<-slots
			if !isConflict(err) {
				return err
			}
			quick = quick && time.Since(sent) < lockWait/2
		case <-again:
		case <-ctx.Done():
			return err
		}
	}
}

// briefKey is the context key of brief.
type briefKey struct{}

// brief returns a context whose statements do not wait for locked rows: those of what
// the engine does by itself, which can be done later and holds up other mutexes.
func brief(ctx context.Context) context.Context { return context.WithValue(ctx, briefKey{}, true) }

func isBrief(ctx context.Context) bool { return ctx.Value(briefKey{}) != nil }
