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

// errLost is what a database reports of a wait for a row that was in vain.
var errLost = &mysqldriver.MySQLError{Number: errLockWait}

// wholeSeconds are the lock waits of a server that knows none below one second, as MySQL.
func wholeSeconds(timeout time.Duration) *lockWaits {
	w := newLockWaits(timeout)
	w.alwaysWaits = true
	return w
}

// TestLockWaitsAreBoundedWithWholeSecondTimeouts, however many rows are locked and
// however long requests for them must queue.
func TestLockWaitsAreBoundedWithWholeSecondTimeouts(t *testing.T) {
	for _, rows := range []int{1, 20, 60} {
		t.Run(fmt.Sprint(rows), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := wholeSeconds(defaultTimeout)
				var mu sync.Mutex // guards what follows
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
						return errLost
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				ctx, stop := context.WithCancel(t.Context())
				for i := range 2 * rows { // the one in the gate, and the one in the gate of GUARDs
					go func() {
						for ctx.Err() == nil {
							ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
							_ = w.run(ctx, fmt.Sprint("hot", i%rows), func(prefix string) error { return statement(ctx, prefix) })
							cancel()
						}
					}()
				}
				time.Sleep(lockWait + lockWait/2) // each row is met once
				mu.Lock()
				eager, most = 0, 0
				mu.Unlock()
				time.Sleep(10 * time.Minute)
				stop()
				synctest.Wait()
				if most > min(maxLockWaits, 2*rows) || most == 0 || eager > 0 {
					t.Errorf("up to %d statements waited at a time, and %d of all had no slot", most, eager)
				}
			})
		})
	}
}

// TestWaitForASlotEndsWhenTheRowIsGained any more, though the slots are taken.
func TestWaitForASlotEndsWhenTheRowIsGained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wholeSeconds(time.Hour)
		for range maxLockWaits - 1 { // other mutexes have them
			w.slots <- struct{}{}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w.noteTimeout("m")
		go func() {
			if err := w.run(ctx, "m", func(string) error { time.Sleep(lockWait); return nil }); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()                       // it has the last slot
		go func() { w.slots <- struct{}{} }() // and another mutex has it next
		synctest.Wait()
		start := time.Now()
		if err := w.run(ctx, "m", func(string) error { return nil }); err != nil || time.Since(start) > lockWait {
			t.Errorf("the next: %v after %v", err, time.Since(start))
		}
		if w.isLocked("m") {
			t.Error("the row counts as locked")
		}
	})
}

// TestWaitCutShortMarksTheRowLocked where a request has too little time to learn
// that its wait is lost.
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

// TestOnlyALockWaitTimeoutMarksTheRowLocked: a statement that times out does not, as when the
// database cannot be reached, nor does a deadlock.
func TestOnlyALockWaitTimeoutMarksTheRowLocked(t *testing.T) {
	for name, c := range map[string]struct {
		always bool
		ends   error
		want   bool
	}{
		"lost wait":                {true, errLost, true},
		"lost wait in a slot":      {false, errLost, true},
		"deadlock":                 {true, &mysqldriver.MySQLError{Number: errDeadlock}, false},
		"timeout":                  {true, context.DeadlineExceeded, false},
		"timeout at any server":    {false, context.DeadlineExceeded, false},
		"broken connection":        {true, mysqldriver.ErrInvalidConn, false},
		"broken connection at any": {false, mysqldriver.ErrInvalidConn, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLockWaits(defaultTimeout)
				w.alwaysWaits = c.always
				ctx, cancel := context.WithTimeout(t.Context(), defaultTimeout)
				defer cancel()
				_ = w.run(ctx, "m", func(prefix string) error {
					if prefix == "" && !w.alwaysWaits && errors.Is(c.ends, errLost) {
						return errLost // it must not wait
					}
					if errors.Is(c.ends, context.DeadlineExceeded) {
						<-ctx.Done()
					} else {
						time.Sleep(lockWait)
					}
					return c.ends
				})
				if w.isLocked("m") != c.want {
					t.Errorf("it is marked: %v", !c.want)
				}
				time.Sleep(2 * lockedFor)
				if w.isLocked("m") {
					t.Error("it stays marked")
				}
			})
		})
	}
}
