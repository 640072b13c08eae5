package mysql

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
)

// errLockWaitTimeout is the database's error when a lock wait times out.
var errLockWaitTimeout = &mysqldriver.MySQLError{Number: errLockWait}

// wholeSeconds returns the lockWaits of a server whose shortest lock wait is one second, like
// MySQL.
func wholeSeconds(timeout time.Duration) *lockWaits {
	w := newLockWaits(timeout)
	w.alwaysWaits = true
	return w
}

// The bound holds however many rows are locked and however long requests for them wait.
func TestLockWaitsAreBoundedWithWholeSecondTimeouts(t *testing.T) {
	for _, rows := range []int{1, 20, 60} {
		t.Run(fmt.Sprint(rows), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := wholeSeconds(defaultTimeout)
				var mu sync.Mutex // guards the variables below
				var now, most, eager int
				statement := func(ctx context.Context, prefix string) error {
					mu.Lock()
					if prefix == "" {
						eager++
					}
					now++
					most = max(most, now)
					mu.Unlock()
					defer func() {
						mu.Lock()
						now--
						mu.Unlock()
					}()
					select {
					case <-time.After(lockWait):
						return errLockWaitTimeout
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				ctx, stop := context.WithCancel(t.Context())
				// For each row, one request holds the mutexState's lock, and another one holds its
				// lock renewals.
				for i := range 2 * rows {
					go func() {
						for ctx.Err() == nil {
							ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
							_ = w.run(ctx, fmt.Sprint("hot", i%rows), func(prefix string) error { return statement(ctx, prefix) })
							cancel()
						}
					}()
				}
				time.Sleep(lockWait + lockWait/2) // one statement for each row has timed out
				mu.Lock()
				eager, most = 0, 0
				mu.Unlock()
				time.Sleep(10 * time.Minute)
				stop()
				synctest.Wait()
				if most > min(maxLockWaits, 2*rows) || most == 0 || eager > 0 {
					t.Errorf("up to %d statements waited at a time, want 1 to %d; %d had no slot, want 0", most, min(maxLockWaits, 2*rows), eager)
				}
			})
		})
	}
}

// The wait for a slot ends although all slots are taken.
func TestWaitForASlotEndsWhenTheRowIsGained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wholeSeconds(time.Hour)
		for range maxLockWaits - 1 { // taken by other mutexes
			w.slots <- struct{}{}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w.noteTimeout("m")
		go func() {
			if err := w.run(ctx, "m", func(string) error { time.Sleep(lockWait); return nil }); err != nil {
				t.Errorf("run: %v; want no error", err)
			}
		}()
		synctest.Wait()                       // that request has the last slot
		go func() { w.slots <- struct{}{} }() // another mutex gets that slot next
		synctest.Wait()
		start := time.Now()
		if err := w.run(ctx, "m", func(string) error { return nil }); err != nil || time.Since(start) > lockWait {
			t.Errorf("the next request: %v after %v; want no error, within the lock wait", err, time.Since(start))
		}
		if w.isLocked("m") {
			t.Error("isLocked is true after the row was gained")
		}
	})
}

// The request's deadline comes before the server's lock wait timeout.
func TestWaitCutShortMarksTheRowLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wholeSeconds(lockWait)
		ctx, cancel := context.WithTimeout(t.Context(), lockWait)
		defer cancel()
		_ = w.run(ctx, "m", func(string) error { <-ctx.Done(); return ctx.Err() })
		if !w.isLocked("m") {
			t.Error("the row does not count as locked")
		}
	})
}

// A statement that times out for another reason does not mark the row, for example if the database
// cannot be reached. A deadlock does not mark it either.
func TestOnlyALockWaitTimeoutMarksTheRowLocked(t *testing.T) {
	for name, c := range map[string]struct {
		always bool
		ends   error
		want   bool
	}{
		"lock wait timeout without a slot": {true, errLockWaitTimeout, true},
		"lock wait timeout in a slot":      {false, errLockWaitTimeout, true},
		"deadlock":                         {true, &mysqldriver.MySQLError{Number: errDeadlock}, false},
		"request timeout, like MySQL":      {true, context.DeadlineExceeded, false},
		"request timeout, like MariaDB":    {false, context.DeadlineExceeded, false},
		"broken connection, like MySQL":    {true, mysqldriver.ErrInvalidConn, false},
		"broken connection, like MariaDB":  {false, mysqldriver.ErrInvalidConn, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLockWaits(defaultTimeout)
				w.alwaysWaits = c.always
				ctx, cancel := context.WithTimeout(t.Context(), defaultTimeout)
				defer cancel()
				_ = w.run(ctx, "m", func(prefix string) error {
					if prefix == "" && !w.alwaysWaits && errors.Is(c.ends, errLockWaitTimeout) {
						return errLockWaitTimeout // on MariaDB the first attempt does not wait
					}
					if errors.Is(c.ends, context.DeadlineExceeded) {
						<-ctx.Done()
					} else {
						time.Sleep(lockWait)
					}
					return c.ends
				})
				if w.isLocked("m") != c.want {
					t.Errorf("isLocked is %v after the request, want %v", !c.want, c.want)
				}
				time.Sleep(2 * lockedFor)
				if w.isLocked("m") {
					t.Error("isLocked is true after lockedFor has passed")
				}
			})
		})
	}
}
