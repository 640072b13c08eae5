package mysql

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
)

// The table has rows and a lease of Simba up to 3.2, whose contenders go on using it.
func TestTokensBeginAfterTheMigration(t *testing.T) {
	store := serverWithTable(t, seeds.MySQLTable)
	db := direct(t, store, "")
	old := jvm{db: db, mutex: "m", id: "old", ttl: long}
	must(t, db, seeds.MySQLInit, "m")
	old.mustAcquire(t)
	_, err := Open(t.Context(), Options{DSN: dsn(store.Addr), Options: proxy.Options{Notices: conformance.NewBroker()}})
	if err == nil || !strings.Contains(err.Error(), "no column fencing_token: start with --mysql-migrate, or run "+addToken) {
		t.Errorf("Open without the column: %v; want an error with the statement that adds it", err)
	}
	one, two := serve(t, store.Addr, nil), serve(t, store.Addr, nil)
	k := tokens{mutex: "m"}
	k.begin(t, "old", ownerOf(t, one, "m").Token, one, two)
	old.mustAcquire(t)
	k.goOn(t, "old", one, two)
	old.giveUp(t)
	k.begin(t, "a", take(t, two, "m", "a", long).Token, one, two)
	release(t, one, "m", "a")
	now := jvm{db: db, mutex: "m", id: "now", ttl: long, fenced: true}
	k.begin(t, "now", now.mustAcquire(t), one, two)
	must(t, db, seeds.MySQLInit, "another") // names six columns
	must(t, db, "ALTER TABLE simba_mutex ALTER COLUMN fencing_token DROP DEFAULT")
	if _, err := Open(t.Context(), Options{DSN: dsn(store.Addr), Options: proxy.Options{Notices: conformance.NewBroker()}}); err == nil || !strings.Contains(err.Error(), "fencing_token") {
		t.Errorf("Open with a column without a default: %v; want an error that names fencing_token", err)
	}
}

func TestConcurrentMigrationsSucceed(t *testing.T) {
	store := serverWithTable(t, seeds.MySQLTable)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			b, err := Open(t.Context(), Options{DSN: dsn(store.Addr), Migrate: true, Options: proxy.Options{Timeout: patience, Notices: conformance.NewBroker()}})
			if err != nil {
				t.Errorf("Open: %v; want no error", err)
				return
			}
			defer b.Close()
		})
	}
	all.Wait()
}

// The error has one line, and the table stays as it was.
func TestFailedMigrationNamesTheCause(t *testing.T) {
	store := serverWithTable(t, seeds.MySQLTable)
	db := direct(t, store, "")
	must(t, db, "CREATE USER u IDENTIFIED BY 'geheim'")
	must(t, db, "GRANT SELECT, INSERT, UPDATE, CREATE ON simba.simba_mutex TO u")
	user := "u:geheim@tcp(" + store.Addr + ")/simba"
	migrates := func(dsn, want string) {
		t.Helper()
		b, err := Open(t.Context(), Options{DSN: dsn, Migrate: true, Options: proxy.Options{Timeout: patience, Notices: conformance.NewBroker()}})
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
	must(t, db, seeds.MySQLInit, "m")
	tx := lockRow(t, db, "m")
	began := time.Now()
	migrates(dsn(store.Addr), "a transaction uses the table simba_mutex")
	if took := time.Since(began); took > patience/2 {
		t.Errorf("Open waited for %v, too long", took)
	}
	tx.Rollback()
	must(t, db, "GRANT ALTER ON simba.simba_mutex TO u")
	take(t, serve(t, store.Addr, func(o *Options) { o.DSN = user }), "m", "a", long)
}
