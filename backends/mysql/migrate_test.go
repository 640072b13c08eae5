package mysql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
)

// simbasColumn is the statement of Simba's own migration.
const simbasColumn = "ALTER TABLE simba_mutex ADD COLUMN fencing_token BIGINT UNSIGNED NOT NULL DEFAULT 0"

// The table has rows, leases and a waiter, and other servers and a contender on the JVM use it.
func TestMigrationContinuesTokensAboveTheVersions(t *testing.T) {
	store := serverWithSeedTable(t)
	db := direct(t, store, "")
	one := serve(t, store.Addr, withoutMigration)
	must(t, db, seeds.MySQLInit, "unused")
	must(t, db, seeds.MySQLInit, "theirs")
	must(t, db, "INSERT INTO simba_mutex VALUES ('used', 0, 0, 0, '', 70)")
	old := jvm{db: db, mutex: "theirs", id: "old", ttl: long}
	for range 5 {
		old.mustAcquire(t)
	}
	a := take(t, one, "used", "a", long)
	waits := block(t, one, "used", "b", long)

	two := serve(t, store.Addr, nil)
	var initial string
	err := db.QueryRow("SELECT CONCAT(column_type, ' ', is_nullable, ' ', column_default) FROM information_schema.columns" +
		" WHERE table_name = 'simba_mutex' AND column_name = 'fencing_token'").Scan(&initial)
	if err != nil || initial != "bigint(20) unsigned NO 0" {
		t.Errorf("the column is %s, %v; want bigint(20) unsigned NO 0", initial, err)
	}
	for mutex, want := range map[string]uint64{"unused": 2, "theirs": 5_000_002, "used": a.Token*tokenUnit + 2} {
		var token uint64
		if err := db.QueryRow("SELECT fencing_token FROM simba_mutex WHERE mutex = ?", mutex).Scan(&token); err != nil || token != want {
			t.Errorf("%s has token %d, %v; want %d", mutex, token, err, want)
		}
	}

	used := tokens{mutex: "used"}
	used.begin(t, "a", a.Token, two, one)
	for _, b := range []*Backend{one, two} {
		g, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: "used", Contender: "a", TTL: long, Token: a.Token})
		if err != nil || g.Status != simba.StatusRenewed || g.Token != a.Token {
			t.Errorf("GUARD of a: %+v, %v; want renewed with the same token", g, err)
		}
	}
	release(t, one, "used", "a")
	used.begin(t, "b", waits.granted(t).Token, one, two)
	release(t, two, "used", "b")
	now := jvm{db: db, mutex: "used", id: "now", ttl: long, fenced: true}
	used.begin(t, "now", now.mustAcquire(t), one, two)

	theirs := tokens{mutex: "theirs"}
	theirs.begin(t, "old", 5, one, two)
	// Renewals of the old contender changed the token before the column was added. This renewal
	// changes it too.
	old.mustAcquire(t)
	theirs.begin(t, "old", 5_000_002, one, two)
	old.mustAcquire(t)
	theirs.goOn(t, "old", one, two)
	old.giveUp(t)
	theirs.begin(t, "c", take(t, one, "theirs", "c", long).Token, one, two)

	serve(t, store.Addr, nil) // migrates once more
	theirs.goOn(t, "c", one, two)
}

func TestConcurrentMigrationsSucceed(t *testing.T) {
	store := serverWithSeedTable(t)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			b, err := Open(t.Context(), Options{DSN: dsn(store.Addr), Migrate: true, Timeout: patience, Notices: conformance.NewBroker()})
			if err != nil {
				t.Errorf("Open: %v; want no error", err)
				return
			}
			defer b.Close()
			if !b.store.fenced.Load() {
				t.Error("after Open with Migrate the server does not know of fencing_token")
			}
		})
	}
	all.Wait()
}

// The error has one line, and servers can still use the table.
func TestFailedMigrationNamesTheCause(t *testing.T) {
	store := serverWithSeedTable(t)
	db := direct(t, store, "")
	must(t, db, "CREATE USER u IDENTIFIED BY 'geheim'")
	must(t, db, "GRANT SELECT, INSERT, UPDATE, CREATE ON simba.simba_mutex TO u")
	user := "u:geheim@tcp(" + store.Addr + ")/simba"
	migrates := func(dsn, want string) {
		t.Helper()
		b, err := Open(t.Context(), Options{DSN: dsn, Migrate: true, Timeout: patience, Notices: conformance.NewBroker()})
		if err == nil {
			b.Close()
			err = errors.New("no error")
		}
		if text := err.Error(); !strings.Contains(text, want) || strings.Contains(text, "\n") {
			t.Errorf("Open: %q; want one line with %q", text, want)
		}
	}
	migrates(user, "ALTER command denied")
	migrates(user, "GRANT SELECT, INSERT, UPDATE ON it, and CREATE and ALTER for --mysql-migrate")
	b := serve(t, store.Addr, func(o *Options) { o.DSN, o.Migrate = user, false })
	take(t, b, "m", "a", long)

	tx := lockRow(t, db, "m")
	began := time.Now()
	migrates(dsn(store.Addr), "a transaction uses the table simba_mutex")
	if took := time.Since(began); took > patience/2 {
		t.Errorf("Open waited for %v, too long", took)
	}
	tx.Rollback()
	if g, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: long}); err != nil || g.Status != simba.StatusRenewed {
		t.Errorf("GUARD after the failed migration: %+v, %v; want renewed", g, err)
	}
	must(t, db, "GRANT ALTER ON simba.simba_mutex TO u")
	serve(t, store.Addr, func(o *Options) { o.DSN = user })
	release(t, b, "m", "a")
}

func TestMigrationMayExceedTheRequestTimeout(t *testing.T) {
	store := serverWithSeedTable(t)
	db := direct(t, store, "")
	must(t, db, "INSERT INTO simba_mutex SELECT CONCAT('m', seq), 0, 0, 0, '', seq FROM seq_1_to_400000")
	const timeout = 700 * time.Millisecond
	began := time.Now()
	b, err := Open(t.Context(), Options{DSN: dsn(store.Addr), Migrate: true, Timeout: timeout, Notices: conformance.NewBroker()})
	noError(t, err)
	defer b.Close()
	if took := time.Since(began); took < timeout {
		t.Logf("the migration took only %v, less than the request timeout, so this run checks nothing but the tokens", took)
	}
	if o := take(t, serve(t, store.Addr, nil), "m4711", "a", long); o.Token != 4712*tokenUnit {
		t.Errorf("ACQUIRE after the migration: %+v; want a token above the version", o)
	}
}

// Simba's own migration begins with token 0. A running tenure of this engine keeps its token.
func TestTokensContinueAfterSimbasOwnMigration(t *testing.T) {
	store := serverWithSeedTable(t)
	db := direct(t, store, "")
	one, two := serve(t, store.Addr, withoutMigration), serve(t, store.Addr, withoutMigration)
	must(t, db, "INSERT INTO simba_mutex VALUES ('m', 0, 0, 0, '', 70)")
	k := tokens{mutex: "m"}
	k.begin(t, "a", take(t, one, "m", "a", long).Token, one)
	must(t, db, simbasColumn)
	one.store.fenced.Store(true) // the server knows of the column before it reads the row
	if l, ok, err := one.store.guard(deadline(t), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: long, Token: k.list[0]}); !ok || err != nil || l.token != k.list[0] {
		t.Errorf("GUARD of a: %+v, %v, %v; want the same token", l, ok, err)
	}
	k.goOn(t, "a", one, two)
	g, err := one.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: long, Token: k.list[0]})
	if err != nil || g.Status != simba.StatusRenewed {
		t.Errorf("GUARD of a with its token: %+v, %v; want renewed", g, err)
	}
	release(t, two, "m", "a")
	now := jvm{db: db, mutex: "m", id: "now", ttl: long, fenced: true}
	k.begin(t, "now", now.mustAcquire(t), one, two)
	now.giveUp(t)
	k.begin(t, "b", take(t, two, "m", "b", long).Token, two, one)

	// A contender of Simba 3.3 gets token 1 if its tenure begins before a server has noticed the
	// column.
	must(t, db, "INSERT INTO simba_mutex (mutex, acquired_at, ttl_at, transition_at, owner_id, version) VALUES ('late', 0, 0, 0, '', 70)")
	late := tokens{mutex: "late"}
	late.begin(t, "a", take(t, one, "late", "a", long).Token, one, two)
	release(t, one, "late", "a")
	must(t, db, "UPDATE simba_mutex SET fencing_token = 0 WHERE mutex = 'late'")
	now.mutex = "late"
	if token := now.mustAcquire(t); token != 1 {
		t.Errorf("the Simba contender has token %d, want 1", token)
	}
	if o := ownerOf(t, two, "late"); o.Owner != "now" || o.Token != 1 {
		t.Errorf("OWNER: %+v; want now with token 1", o)
	}
	now.giveUp(t)
	late.begin(t, "b", take(t, two, "late", "b", long).Token, two, one)
}

// The column is added while the contenders compete, on two servers that keep running. The owner
// keeps its token, and tokens grow. The column is dropped while there is no lease.
func TestTokensAreUniqueWhileTheColumnIsAddedAndDropped(t *testing.T) {
	for name, add := range map[string]string{"ours": addToken, "Simba's": simbasColumn} {
		t.Run(name, func(t *testing.T) {
			store := serverWithSeedTable(t)
			db := direct(t, store, "")
			must(t, db, seeds.MySQLInit, "m")
			servers := []*Backend{
				serve(t, store.Addr, func(o *Options) { o.Migrate, o.Timeout = false, patience }),
				serve(t, store.Addr, func(o *Options) { o.Migrate, o.Timeout = false, patience }),
			}
			var mu sync.Mutex // guards the variables below
			var last uint64
			var by string
			tenures, all := map[string]int{}, map[uint64]string{}
			began := func(kind, id string, token uint64) {
				mu.Lock()
				defer mu.Unlock()
				if token <= last || all[token] != "" {
					t.Errorf("%s got token %d after %s had token %d, and %q had the same token; want a larger and unused token", id, token, by, last, all[token])
				}
				last, by, all[token] = token, id, id
				tenures[kind]++
			}
			enough := func() bool {
				// contend has returned, so nobody changes tenures.
				return tenures["ours"] >= 20 && (add != addToken || tenures["now"] > 0)
			}
			begun := time.Now()
			for time.Since(begun) < 4*time.Second || !enough() && time.Since(begun) < 3*patience && !t.Failed() {
				contend(t, servers, began, func() error { _, err := db.Exec(add); return err }, jvm{db: db, mutex: "m", id: "now", ttl: long, fenced: add == addToken})
				must(t, db, "ALTER TABLE simba_mutex DROP COLUMN fencing_token")
				last = 0 // tokens are versions again
			}
			t.Log(tenures)
			if !enough() {
				t.Errorf("too few tenures in the time of the test: %v", tenures)
			}
		})
	}
}

// contend lets four contenders of this engine compete for a mutex for a while. If now takes tokens,
// this contender on the JVM competes too. Meanwhile contend calls addColumn. The mutex is free when
// contend returns.
func contend(t *testing.T, servers []*Backend, began func(kind, id string, token uint64), addColumn func() error, now jvm) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond+rand.N(200*time.Millisecond))
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		<-time.After(rand.N(200 * time.Millisecond))
		if err := addColumn(); err != nil {
			t.Errorf("addColumn: %v; want no error", err)
		}
	})
	for i := range 4 {
		b, id := servers[i%2], fmt.Sprintf("ours-%d", i)
		all.Go(func() {
			for ctx.Err() == nil {
				r := request("m", id, long)
				w := &waiter{woken: make(chan struct{})}
				if r.NoQueue = i > 1; !r.NoQueue {
					r.Waiter = w
				}
				o, ticket, err := b.Acquire(t.Context(), r)
				if err == nil && ticket != nil {
					why := simba.EndWoken
					select {
					case <-w.woken:
					case <-ctx.Done():
						why = simba.EndLeft
					}
					o, err = ticket.End(why)
				}
				if err != nil {
					t.Errorf("ACQUIRE of %s: %v; want no error", id, err)
					return
				}
				if o.Status == simba.StatusAcquired {
					began("ours", id, o.Token)
					servers[(i+1)%2].mustKeep(t, "m", id, o.Token)
					b.mustKeep(t, "m", id, o.Token)
					release(t, servers[rand.N(2)], "m", id)
				}
				<-time.After(rand.N(10 * time.Millisecond))
			}
		})
	}
	for now.fenced && ctx.Err() == nil {
		token, owns, err := now.acquireToken(t.Context()) // an error until the column is added
		if err == nil && owns {
			began("now", now.id, token)
			now.giveUp(t)
		}
		<-time.After(rand.N(5 * time.Millisecond))
	}
}

// When the column is dropped, a running lease gets another token, and tokens are smaller. When it
// is added again, tokens continue above all earlier ones.
func TestTokensAreVersionsAfterTheColumnIsDropped(t *testing.T) {
	store := serverWithTable(t, Schema)
	db := direct(t, store, "")
	b := serve(t, store.Addr, withoutMigration)
	k := tokens{mutex: "m"}
	k.begin(t, "a", take(t, b, "m", "a", long).Token, b)
	must(t, db, "ALTER TABLE simba_mutex DROP COLUMN fencing_token")
	if ok, _, err := b.Check(t.Context(), "m", k.list[0]); ok || err != nil {
		t.Errorf("CHECK of the token before the column was dropped: %v, %v; want false", ok, err)
	}
	g, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: long})
	if err != nil || g.Status != simba.StatusRenewed || g.Token != 1 {
		t.Errorf("GUARD: %+v, %v; want renewed with token 1", g, err)
	}
	release(t, b, "m", "a")
	if c := take(t, b, "m", "c", long); c.Token != 3 {
		t.Errorf("ACQUIRE of c: %+v; want token 3", c)
	}
	must(t, db, simbasColumn)
	b.mustKeep(t, "m", "c", 3)
	release(t, b, "m", "c")
	k.begin(t, "d", take(t, b, "m", "d", long).Token, b)
}

// mustKeep checks that a tenure is running with its token, and renews it.
func (b *Backend) mustKeep(t *testing.T, mutex, contender string, token uint64) {
	t.Helper()
	if ok, _, err := b.Check(t.Context(), mutex, token); !ok || err != nil {
		t.Errorf("CHECK of token %d of %s: %v, %v; want true", token, contender, ok, err)
	}
	g, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: mutex, Contender: contender, TTL: long, Token: token})
	if err != nil || g.Status != simba.StatusRenewed || g.Token != token {
		t.Errorf("GUARD with token %d of %s: %+v, %v; want renewed", token, contender, g, err)
	}
}
