package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// Many clients send requests for mutexes whose rows a transaction has locked. Meanwhile, requests
// of each kind for another mutex are not delayed.
func TestLockedRowsDelayNoOtherMutex(t *testing.T) {
	for _, rows := range []int{1, 20} {
		t.Run(fmt.Sprintf("%d rows", rows), func(t *testing.T) { runCrowd(t, rows) })
	}
}

// mostLockWaits is how many statements wait for rows that are known to be locked.
const mostLockWaits = 8

func runCrowd(t *testing.T, rows int) {
	store := stores.MariaDB(t)
	n := conformance.NewBroker()
	b := serve(t, store.Addr, func(o *Options) { o.Timeout, o.Notices = 3*time.Second, n })
	db := direct(t, store, "")
	hot := func(i int) string { return fmt.Sprintf("hot-%d", i%rows) }
	for i := range rows {
		take(t, b, hot(i), "owner", long)
		block(t, b, hot(i), "waiter", long)
	}
	take(t, b, "other", "a", long)
	var measured []int
	func() {
		tx, err := db.Begin()
		noError(t, err)
		defer tx.Rollback()
		for i := range rows {
			var version int
			noError(t, tx.QueryRow("SELECT version FROM simba_mutex WHERE mutex = ? FOR UPDATE", hot(i)).Scan(&version))
		}
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer stop()
		for client := range 120 {
			all.Go(func() {
				for ctx.Err() == nil {
					switch client % 4 {
					case 0:
						_, _ = b.Guard(t.Context(), simba.GuardRequest{Mutex: hot(client / 4), Contender: "owner", TTL: long})
					case 1:
						_, _ = b.Guard(t.Context(), simba.GuardRequest{Mutex: hot(client / 4), Contender: fmt.Sprint(client), TTL: long})
					case 2:
						_, _, _ = b.Acquire(t.Context(), request(hot(client/4), "owner", long))
					case 3:
						_, _, _ = b.Acquire(t.Context(), request(hot(client/4), fmt.Sprint(client), long))
					}
				}
			})
		}
		var took []time.Duration
		round := func() {
			began := time.Now()
			if _, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: "other", Contender: "a", TTL: long}); err != nil {
				t.Errorf("GUARD of the other mutex: %v; want no error", err)
			}
			w := block(t, b, "other", "b", long)
			release(t, b, "other", "a")
			w.Granted(t)
			release(t, b, "other", "b")
			take(t, b, "other", "a", long)
			if o := ownerOf(t, b, "other"); o.Owner != "a" {
				t.Errorf("OWNER of the other mutex: %+v; want a", o)
			}
			took = append(took, time.Since(began))
			time.Sleep(5 * time.Millisecond)
		}
		rounds := func(d time.Duration) time.Duration {
			took = nil
			for end := time.Now().Add(d); time.Now().Before(end); {
				round()
			}
			slices.Sort(took)
			return took[len(took)*9/10]
		}
		// A wait for a locked row takes a second. A busy machine may take that long anyway, but
		// hardly each time.
		var late time.Duration
		rounds(2 * time.Second) // meanwhile the engine learns which rows are locked
		measured = lockWaitsWhile(t, db, func() {
			late = rounds(5 * time.Second)
			for try := 0; try < 3 && late > lockWait/2; try++ {
				late = rounds(2 * time.Second)
			}
		})
		if late > lockWait/2 {
			t.Errorf("a tenth of the rounds for the other mutex took %v or more, want at most %v", late, lockWait/2)
		}
		t.Logf("%d rounds, half within %v, nine tenths within %v, all within %v", len(took), took[len(took)/2], took[len(took)*9/10], took[len(took)-1])
		take(t, b, "brief", "a", long)
		w := block(t, b, "brief", "b", long)
		if _, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: "brief", Contender: "a", TTL: 300 * time.Millisecond}); err != nil && !isUnavailable(err) {
			// The answer may take longer than the lease.
			t.Errorf("GUARD of the brief lease: %v; want no error, or an UnavailableError", err)
		}
		w.Granted(t)
	}()
	// On a machine that stalls at times, the database may list a wait longer than the server does.
	// So the test ignores the highest quarter of the samples.
	slices.Sort(measured)
	if most := min(mostLockWaits, rows); measured[len(measured)*3/4] > most {
		t.Errorf("the samples of connections that wait for %d locked rows are %v, want three quarters of them at most %d", rows, measured, most)
	}
	t.Logf("at most %d connections waited for %d locked rows", measured[len(measured)-1], rows)
	for i := range rows { // requests for these rows succeed again
		release(t, b, hot(i), "owner")
	}
}

// lockWaitsWhile runs an action. Meanwhile it samples how many transactions of the database wait
// for rows.
func lockWaitsWhile(t *testing.T, db *sql.DB, action func()) (list []int) {
	ctx, cancel := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	looking.Go(func() {
		for ctx.Err() == nil {
			list = append(list, waitingFor(t, db))
		}
	})
	action()
	cancel()
	looking.Wait()
	return list
}

// waitingFor returns how many transactions of the database wait for rows. The database refreshes
// that list at most every 100 ms.
func waitingFor(t *testing.T, db *sql.DB) (n int) {
	<-time.After(120 * time.Millisecond)
	err := db.QueryRow("SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'").Scan(&n)
	if err != nil {
		t.Errorf("query: %v; want no error", err)
	}
	return n
}

// A renewal checks the lease before it commits. A slow commit may end after the lease that it
// renews. Until then, other transactions still read the old windows.
func TestEndIsNotReportedWhileARenewalCommits(t *testing.T) {
	store := stores.MariaDB(t)
	b := serve(t, store.Addr, func(*Options) {})
	db := direct(t, store, "")
	for name, owned := range map[string]func(token uint64) bool{
		"OWNER": func(uint64) bool { return ownerOf(t, b, "OWNER").Owner == "a" },
		"CHECK": func(token uint64) bool {
			valid, _, err := b.Check(t.Context(), "CHECK", token)
			return valid && err == nil
		},
		"BREAK": func(uint64) bool {
			broken, _, err := b.Break(t.Context(), "BREAK", "test")
			return broken && err == nil
		},
	} {
		o := take(t, b, name, "a", 200*time.Millisecond)
		tx, err := db.Begin()
		noError(t, err)
		defer tx.Rollback()
		const hour = " + 3600000"
		if _, err := tx.Exec("UPDATE simba_mutex SET ttl_at = ttl_at"+hour+", transition_at = transition_at"+hour+" WHERE mutex = ?", name); err != nil {
			t.Fatalf("Exec: %v; want no error", err)
		}
		for ended := false; !ended; {
			noError(t, db.QueryRow("SELECT transition_at < "+dbNow+" FROM simba_mutex WHERE mutex = ?", name).Scan(&ended))
		}
		reply := make(chan bool)
		go func() { reply <- owned(o.Token) }()
		select {
		case <-reply:
			t.Errorf("%s replied before the renewal had committed", name)
			continue
		case <-time.After(100 * time.Millisecond): // time for a premature reply
		}
		noError(t, tx.Commit())
		if !<-reply {
			t.Errorf("%s reported the end of a lease that was renewed in time", name)
		}
	}
}
