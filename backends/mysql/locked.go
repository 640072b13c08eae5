package mysql

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A row that another transaction holds must not take the connections that other mutexes
// need. So a statement that wants a row finds out at once whether it is held: on MariaDB
// by a lock wait of 0. Then it waits at the database, for lockWait, in one of a few slots
// only. While they are taken it tries again now and then.
//
// MySQL knows no lock wait below one second. There a statement finds out after that
// second, so a row that was locked just now takes its mutex' two connections for so long,
// once: who wants it after that begins with a slot.

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
	slots  chan struct{}
	enough time.Duration // a request with less time left does not begin to wait for a locked row
	always atomic.Bool   // the server makes every statement wait that meets a locked row

	mu     sync.Mutex           // guards what follows
	locked map[string]time.Time // mutexes whose row was waited for in vain, until when that counts
}

// lockedFor is for how long a row counts as locked after a wait in vain.
const lockedFor = 2 * lockWait

// newLockWaits takes the time limit of requests.
func newLockWaits(timeout time.Duration) *lockWaits {
	return &lockWaits{
		slots:  make(chan struct{}, maxLockWaits),
		enough: min(lockWait, timeout/2),
		locked: make(map[string]time.Time),
	}
}

// isLocked reports whether another transaction is known to hold the mutex' row.
func (w *lockWaits) isLocked(mutex string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.locked[mutex])
}

// inVain takes note of a wait in vain.
func (w *lockWaits) inVain(mutex string) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.locked, func(_ string, until time.Time) bool { return !now.Before(until) })
	w.locked[mutex] = now.Add(lockedFor)
}

// got takes note that nobody else holds the row.
func (w *lockWaits) got(mutex string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.locked, mutex)
}

// run runs a statement that wants the row of a mutex, until it no longer loses to other
// transactions or the context ends. The statement begins with the text that it is given.
func (w *lockWaits) run(ctx context.Context, mutex string, statement func(patience string) error) error {
	var err error = errLocked
	try := func(patience string) (lost, waited bool, took time.Duration) {
		sent := time.Now()
		err = statement(patience)
		took = time.Since(sent)
		lost, waited = isConflict(err), took >= lockWait/2
		switch {
		case err == nil:
			w.got(mutex)
		case waited && (lost || ctx.Err() != nil):
			w.inVain(mutex)
		}
		return lost, waited, took
	}
	for i := 1; ; i++ {
		locked := w.isLocked(mutex)
		if !locked || !w.always.Load() {
			lost, waited, _ := try("")
			if !lost {
				return err
			}
			w.always.Store(waited)
		}
		slots, again := w.slots, (<-chan time.Time)(nil)
		if !w.always.Load() {
			again = time.After(rand.N(time.Duration(min(i, 50)) * 2 * time.Millisecond))
		}
		if deadline, ok := ctx.Deadline(); ok && locked && again != nil && time.Until(deadline) < w.enough {
			slots = nil // its wait would be cut off, and go on at the database
		}
		if isBrief(ctx) {
			if again == nil || i == quickTries {
				return err
			}
			slots = nil
		}
		select {
		case slots <- struct{}{}:
			lost, _, took := try(patiently)
			if ctx.Err() != nil && took < lockWait {
				time.AfterFunc(lockWait-took, func() { <-w.slots }) // until then it goes on at the database
			} else {
				<-w.slots
			}
			if !lost {
				return err
			}
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
