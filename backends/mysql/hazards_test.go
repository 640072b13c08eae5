package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// The collation of Simba's own table equates some names. So the engine refuses the second of two
// such mutexes. It still distinguishes contenders.
func TestNamesThatTheCollationEquatesAreKeptApart(t *testing.T) {
	store := serverWithSeedTable(t)
	db := direct(t, store, "?charset=utf8mb4")
	b := serve(t, store.Addr, withoutMigration)
	for i, pair := range [][2]string{{"Orders", "orders"}, {"caf\u00e9", "cafe"}, {"\u00c9t\u00e9", "ete"}} {
		first, second := pair[0], pair[1]
		take(t, b, first, "A", long)
		check := func(what string, err error) {
			t.Helper()
			if !isNameError(err, "mutex") {
				t.Errorf("%s of %q beside %q: %v; want a NameError", what, second, first, err)
			}
		}
		_, _, err := b.Acquire(t.Context(), request(second, "A", long))
		check("acquire", err)
		_, err = b.Guard(t.Context(), simba.GuardRequest{Mutex: second, Contender: "A", TTL: long})
		check("guard", err)
		_, _, err = b.Release(t.Context(), simba.ReleaseRequest{Mutex: second, Contender: "A"})
		check("release", err)
		_, _, err = b.Break(t.Context(), second, "")
		check("break", err)
		_, _, err = b.Owner(t.Context(), second)
		check("owner", err)

		if o, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: first, Contender: "a", TTL: long}); err != nil || o.Status != simba.StatusLost {
			t.Errorf("round %d, GUARD of a, while A is the owner: %+v, %v; want lost", i, o, err)
		}
		if ok, _, err := b.Release(t.Context(), simba.ReleaseRequest{Mutex: first, Contender: "a"}); ok || err != nil {
			t.Errorf("round %d, RELEASE of a, while A is the owner: %v, %v; want false", i, ok, err)
		}
		if o, _, err := b.Acquire(t.Context(), request(first, "a", long)); err != nil || o.Status != simba.StatusQueued {
			t.Errorf("round %d, ACQUIRE of a, while A is the owner: %+v, %v; want queued", i, o, err)
		}
		release(t, b, first, "A")
	}
	must(t, db, "INSERT INTO simba_mutex VALUES ('padded ', 0, 0, 0, '', 0, 0)")
	if _, _, err := b.Acquire(t.Context(), request("padded", "a", long)); !isNameError(err, "mutex") {
		t.Errorf("ACQUIRE of a mutex whose row has a trailing space: %v; want a NameError", err)
	}
}

func TestNamesAreNeverTruncated(t *testing.T) {
	store := serverWithSeedTable(t)
	b := serve(t, store.Addr, withoutMigration)
	take(t, b, strings.Repeat("m", 66), strings.Repeat("c", 32), long)
	take(t, b, strings.Repeat("\u00e4", 66), strings.Repeat("\u00f6", 32), long)
	for _, c := range []struct{ mutex, contender, argument string }{
		{strings.Repeat("m", 67), "c", "mutex"},
		{"m", strings.Repeat("c", 33), "contender"},
		{"\u65e5\u672c", "c", "mutex"}, // not in the table's latin1
		{"m", "\u65e5\u672c", "contender"},
	} {
		if _, _, err := b.Acquire(t.Context(), request(c.mutex, c.contender, long)); !isNameError(err, c.argument) {
			t.Errorf("ACQUIRE of %q by %q: %v; want a NameError", c.mutex, c.contender, err)
		}
	}
	ours := serve(t, stores.MariaDB(t).Addr, nil)
	take(t, ours, strings.Repeat("m", simba.MaxMutexLen), strings.Repeat("c", simba.MaxContenderLen), long)
	take(t, ours, strings.Repeat("\U0001f600", simba.MaxMutexLen/4), strings.Repeat("\u65e5", simba.MaxContenderLen/3), long)
}

// The database's NOW is the time when the statement began. So a lease that is granted after a long
// lock wait may have ended when the answer arrives.
func TestLockWaitNeverGrantsAnExpiredLease(t *testing.T) {
	store := stores.MariaDB(t)
	b := serve(t, store.Addr, func(o *Options) { o.Timeout = 3 * time.Second })
	db := direct(t, store, "")
	const ttl = 300 * time.Millisecond
	for i, wait := range []time.Duration{100 * time.Millisecond, 700 * time.Millisecond} {
		mutex := fmt.Sprintf("slow-%d", i)
		take(t, b, mutex, "before", long)
		release(t, b, mutex, "before")
		tx := lockRow(t, db, mutex)
		time.AfterFunc(wait, func() { tx.Rollback() })
		o, _, err := b.Acquire(t.Context(), request(mutex, "a", ttl))
		answered := time.Now()
		s, _, err2 := b.Owner(t.Context(), mutex)
		if wait > ttl && isUnavailable(err) && err2 == nil {
			continue // the client asks again
		}
		if err != nil || err2 != nil {
			t.Fatalf("ACQUIRE: %v, OWNER: %v; want no errors", err, err2)
		}
		if o.Transition <= 0 || o.Transition > ttl {
			t.Errorf("the lease that was granted after a wait of %v has %v left; want more than 0 and at most %v", wait, o.Transition, ttl)
		}
		// If the returned lease has not ended yet, the database must still show it.
		if s.Owner != "a" && time.Since(answered) < o.Transition-time.Duration(clockError)*time.Millisecond {
			t.Errorf("after a wait of %v: ACQUIRE returned a lease of %v, but OWNER shows %q, want a", wait, o.Transition, s.Owner)
		}
	}
}

func lockRow(t testing.TB, db *sql.DB, mutex string) *sql.Tx {
	t.Helper()
	tx, err := db.Begin()
	if err == nil {
		_, err = tx.Exec("UPDATE simba_mutex SET version = version WHERE mutex = ?", mutex)
	}
	noError(t, err)
	return tx
}

// By the server's estimate of the clock, each step arrives an hour after its deadline.
func TestStepAfterItsDeadlineHasNoEffect(t *testing.T) {
	b := serve(t, stores.MariaDB(t).Addr, nil)
	a := take(t, b, "mine", "a", long)
	take(t, b, "free", "a", long)
	release(t, b, "free", "a")
	before, free := ownerOf(t, b, "mine"), proxy.Lease{Owner: "b", TTL: long, Since: time.Now()}
	for name, step := range map[string]func(ctx context.Context) (done bool, err error){
		"Take": func(ctx context.Context) (bool, error) {
			how, _, err := b.store.Take(ctx, "free", &free)
			return how != proxy.Held, err
		},
		"Renew": func(ctx context.Context) (bool, error) {
			return b.store.Renew(ctx, "mine", &proxy.Lease{Owner: "a", TTL: time.Minute, Since: time.Now()})
		},
		"Pass": func(ctx context.Context) (bool, error) {
			_, ok, err := b.store.Pass(ctx, "mine", proxy.From{Owner: "a", Token: a.Token}, nil)
			return ok, err
		},
	} {
		now := time.Now()
		b.store.clock.Learn(now.Add(-time.Hour).UnixMilli(), now, now)
		if done, err := step(deadline(t)); done || err != nil {
			t.Errorf("%s after its deadline: %v, %v; want no effect", name, done, err)
		}
	}
	if o := ownerOf(t, b, "mine"); o.Owner != "a" || o.Token != a.Token || o.TTLAt != before.TTLAt {
		t.Errorf("OWNER after the late steps: %+v; want the same as before: %+v", o, before)
	}
}

// The version must never wrap, since tokens must grow.
func TestVersionOverflowIsAnError(t *testing.T) {
	store := serverWithSeedTable(t)
	b := serve(t, store.Addr, withoutMigration)
	db := direct(t, store, "")
	must(t, db, "INSERT INTO simba_mutex VALUES ('old', 0, 0, 0, '', 4294967295, 0)")
	w := conformance.NewBlocked()
	r := request("old", "b", long)
	r.Waiter = w
	for _, r := range []simba.AcquireRequest{request("old", "a", long), r} {
		_, _, err := b.Acquire(t.Context(), r)
		if err == nil || !strings.Contains(err.Error(), "version") || !strings.Contains(err.Error(), "BIGINT UNSIGNED") {
			t.Errorf("ACQUIRE: %v; want an error that names the column and its new type", err)
		}
	}
	must(t, db, "ALTER TABLE simba_mutex MODIFY version BIGINT UNSIGNED NOT NULL")
	if o := take(t, b, "old", "a", long); o.Token != 4294967296*tokenUnit {
		t.Errorf("ACQUIRE: %+v; want the token of version 4294967296", o)
	}
}

// Times do not depend on the server's zone. In the night when the clocks go back, the expression of
// Simba's own contenders is an hour off.
func TestTimesAreUTC(t *testing.T) {
	t.Setenv("TZ", "Europe/Berlin")
	store := stores.MariaDB(t)
	db := direct(t, store, "")
	conn, err := db.Conn(t.Context())
	noError(t, err)
	defer conn.Close()
	// 2026-10-25 02:30 in summer and in winter time.
	for _, at := range []int64{1792888200, 1792891800} {
		if _, err := conn.ExecContext(t.Context(), fmt.Sprintf("SET timestamp = %d", at)); err != nil {
			t.Fatalf("SET timestamp: %v; want no error", err)
		}
		var now int64
		if err := conn.QueryRowContext(t.Context(), "SELECT "+dbNow).Scan(&now); err != nil || now != at*1000 {
			t.Errorf("when the database's timestamp is %d s, dbNow is %d ms, %v; want the same time", at, now, err)
		}
	}
	must(t, db, "SET GLOBAL time_zone = '+05:30'")
	b := serve(t, store.Addr, nil)
	take(t, b, "utc", "a", long)
	if o := ownerOf(t, b, "utc"); time.Since(time.UnixMilli(o.AcquiredAt)).Abs() > time.Minute {
		t.Errorf("OWNER reports the mutex as acquired at %d, more than a minute off", o.AcquiredAt)
	}
}

// The server's estimate of the clock decides nothing. If the estimate is wrong, the server tries
// again.
func TestDatabaseClockStepIsNoticed(t *testing.T) {
	b := serve(t, stores.MariaDB(t).Addr, nil)
	conformance.WrongClock(t, b, func(step time.Duration) {
		now := time.Now()
		b.store.clock.Learn(b.store.clock.Latest(now)+step.Milliseconds(), now, now)
	})
}

func TestCloseWithoutADatabaseSucceeds(t *testing.T) {
	store := stores.MariaDB(t)
	link := stores.NewLink(t, store.Addr)
	// Poll is long, so that Close is the first to use a broken connection.
	b := serve(t, link.Addr(), func(o *Options) { o.Poll = time.Minute })
	take(t, b, "cut", "a", long)
	link.Reset()
	if err := b.Close(); err != nil {
		t.Errorf("Close: %v; want no error", err)
	}
}
