package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// session opens a session of the superuser.
func session(t testing.TB, store *stores.Server) *pgconn.PgConn {
	t.Helper()
	c, err := pgconn.Connect(t.Context(), stores.PostgresURL(store.Addr))
	noError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func exec(t testing.TB, c *pgconn.PgConn, statements string) {
	t.Helper()
	_, err := run(t.Context(), c, statements)
	noError(t, err)
}

func TestDatabaseCrashLosesNothingAcknowledged(t *testing.T) {
	store := stores.Postgres(t)
	e := suiteEngine(t, store)
	e.Open = e.Direct
	conformance.Crash(t, e, 4, store.Kill, store.Start)
}

func TestWrongClockEstimateMovesNoLease(t *testing.T) {
	b := serve(t, stores.Postgres(t).Addr, nil)
	conformance.WrongClock(t, b, func(step time.Duration) {
		now := time.Now()
		b.store.clock.Learn(b.store.clock.Latest(now)+step.Milliseconds(), now, now)
	})
}

// A transaction of somebody else holds the row of the owner until the lease has ended. The renewal
// that waited for the row must not revive the lease, although the row has not changed.
func TestRenewalThatWaitedBeyondTheLeaseIsRefused(t *testing.T) {
	store := stores.Postgres(t)
	b := serve(t, store.Addr, nil)
	foreign := session(t, store)
	for try := 0; ; try++ {
		mutex, lease := fmt.Sprint("m", try), 300*time.Millisecond
		token := take(t, b, mutex, "a", lease).Token
		began := time.Now()
		exec(t, foreign, "BEGIN")
		exec(t, foreign, "SELECT FROM simba_mutex WHERE mutex = '"+mutex+"' FOR UPDATE")
		result := make(chan bool, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), serveTimeout)
			defer cancel()
			ok, err := b.store.Renew(ctx, mutex, &proxy.Lease{Owner: "a", TTL: long, Token: token, Since: time.Now()})
			if err != nil {
				t.Errorf("Renew: %v; want no error", err)
			}
			result <- ok
		}()
		await(t, "the renewal waits for the row", func() bool {
			return direct(t, store, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == "1" || time.Since(began) > lease
		})
		inTime := time.Since(began) < lease
		time.Sleep(lease - time.Since(began) + 10*time.Millisecond)
		exec(t, foreign, "COMMIT")
		if ok := <-result; ok && inTime {
			t.Fatal("a lease was renewed after its end")
		}
		if inTime {
			return
		}
	}
}

func TestLockedRowIsReportedAndDelaysNoOtherMutex(t *testing.T) {
	store := stores.Postgres(t)
	b := serve(t, store.Addr, func(o *Options) { o.Timeout = 5 * time.Second })
	take(t, b, "hot", "a", long)
	foreign := session(t, store)
	exec(t, foreign, "BEGIN; SELECT FROM simba_mutex WHERE mutex = 'hot' FOR UPDATE")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	began := time.Now()
	_, err := b.store.Renew(ctx, "hot", &proxy.Lease{Owner: "a", TTL: long, Since: time.Now()})
	var locked proxy.NotDone
	if !errors.As(err, &locked) || !locked.Locked {
		t.Errorf("Renew of a locked row after %v: %v; want that it is locked", time.Since(began), err)
	}
	take(t, b, "other", "b", long)
	if o := ownerOf(t, b, "hot"); o.Owner != "a" {
		t.Errorf("OWNER of a locked row: %+v; want a", o)
	}
	exec(t, foreign, "ROLLBACK")
	release(t, b, "hot", "a")
}

// Settings of the role must not weaken a step: neither synchronous_commit, nor the isolation level,
// nor how string literals are read.
func TestSettingsOfTheRoleDoNotMatter(t *testing.T) {
	store := stores.Postgres(t)
	direct(t, store, "ALTER ROLE postgres SET synchronous_commit = off; ALTER ROLE postgres SET default_transaction_isolation = 'serializable';"+
		" ALTER ROLE postgres SET standard_conforming_strings = off; ALTER ROLE postgres SET bytea_output = escape")
	b := serve(t, store.Addr, nil)
	c := serve(t, store.Addr, nil)
	for _, name := range []string{`a'b`, `a\`, `\'`, `a\'; DROP TABLE simba_mutex; --`, `M`, `m`, `é`, `e`, "e\u0301", `$1`, `%`, `日本`, `😀`, strings.Repeat("x", simba.MaxMutexLen)} {
		owner := name
		if len(owner) > simba.MaxContenderLen {
			owner = owner[:simba.MaxContenderLen]
		}
		take(t, b, name, owner, long)
		if o := ownerOf(t, c, name); o.Owner != owner {
			t.Errorf("OWNER of %q: %+v; want %q", name, o, owner)
		}
	}
	page, _, err := c.Scan(t.Context(), simba.ScanRequest{Held: true, Count: 100})
	if err != nil || len(page.Mutexes) != 14 {
		t.Errorf("SCAN: %q, %v; want 14 names", page.Mutexes, err)
	}
	direct(t, store, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'; ")
	direct(t, store, "SELECT pg_reload_conf()")
	await(t, "commits wait for the standby", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, _, err := b.store.Take(ctx, "late", &proxy.Lease{Owner: "late", TTL: time.Millisecond, Since: time.Now()})
		return err != nil
	})
	// The primary reports success if somebody cancels the wait.
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), serveTimeout)
		defer cancel()
		_, _, err := b.store.Take(ctx, "canceled", &proxy.Lease{Owner: "a", TTL: long, Since: time.Now()})
		done <- err
	}()
	for answered := false; !answered; {
		direct(t, store, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		select {
		case err := <-done:
			answered = true
			if !errors.Is(err, errUnreplicated) {
				t.Errorf("Take whose wait for the standby was canceled: %v; want %v", err, errUnreplicated)
			}
		case <-time.After(20 * time.Millisecond):
		}
	}
	direct(t, store, "ALTER SYSTEM RESET synchronous_standby_names")
	direct(t, store, "SELECT pg_reload_conf()")
}

func TestRowsOfFreeMutexesAreDeletedAndTokensGrow(t *testing.T) {
	store := stores.Postgres(t)
	b := serve(t, store.Addr, nil)
	last := take(t, b, "free", "a", long).Token
	release(t, b, "free", "a")
	_, _, _ = b.Acquire(t.Context(), request("ended", "a", time.Millisecond)) // the reply may be late
	take(t, b, "held", "a", long)
	await(t, "the lease has ended", func() bool { return ownerOf(t, b, "ended").Owner == "" })
	if n := b.store.deleteFree(t.Context(), time.Hour); n != 0 {
		t.Errorf("%d rows of the last hour were deleted, want none", n)
	}
	deleted := 0
	await(t, "two rows are deleted", func() bool { deleted += b.store.deleteFree(t.Context(), 0); return deleted == 2 })
	if left := direct(t, store, "SELECT string_agg(mutex, ' ') FROM simba_mutex"); left != "held" {
		t.Errorf("the table has the rows %q, want held", left)
	}
	if token := take(t, b, "free", "b", long).Token; token <= last {
		t.Errorf("the token after the row was deleted is %d, want more than %d", token, last)
	}
}

// A new database begins with tokens of the present time, so that they are larger than those of a
// database that was lost.
func TestTokensBeginAtTheTime(t *testing.T) {
	b := serve(t, stores.Postgres(t).Addr, nil)
	if token := take(t, b, "m", "a", long).Token; token < uint64(time.Now().Add(-time.Hour).UnixMicro()) || token > 1<<53 {
		t.Errorf("the first token is %d", token)
	}
}
