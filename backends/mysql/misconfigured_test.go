package mysql

import (
	"errors"
	"strings"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// isMisconfigured reports whether err is a *simba.MisconfiguredError of one line that contains
// words.
func isMisconfigured(err error, words string) bool {
	own := (*simba.MisconfiguredError)(nil)
	return errors.As(err, &own) && own.Engine == "mysql" &&
		strings.Contains(err.Error(), words) && !strings.ContainsAny(err.Error(), "\n")
}

// Each error occurs while the server runs. When an operator has removed its cause, the server
// recovers.
func TestMisconfigurationIsNamed(t *testing.T) {
	store := stores.MariaDB(t)
	db := direct(t, store, "")
	for _, sql := range []string{
		"CREATE USER u IDENTIFIED BY 'geheim'", "GRANT SELECT, INSERT, UPDATE, CREATE ON simba.simba_mutex TO u",
		"CREATE DATABASE elsewhere",
	} {
		must(t, db, sql)
	}
	b := serve(t, store.Addr, func(o *Options) { o.DSN = "u:geheim@tcp(" + store.Addr + ")/simba" })
	token := take(t, b, "m", "a", long).Token

	requests := map[string]func() error{
		"ACQUIRE": func() error { _, _, err := b.Acquire(t.Context(), request("m", "a", long)); return err },
		"WAIT": func() error {
			r := request("m", "b", long)
			r.Waiter = conformance.NewBlocked()
			_, ticket, err := b.Acquire(t.Context(), r)
			if ticket != nil {
				_, _ = ticket.End(simba.EndLeft)
			}
			return err
		},
		"GUARD": func() error {
			_, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: long})
			return err
		},
		"RELEASE": func() error {
			_, _, err := b.Release(t.Context(), simba.ReleaseRequest{Mutex: "m", Contender: "a", Token: token + 1})
			return err
		},
		"OWNER":     func() error { _, _, err := b.Owner(t.Context(), "m"); return err },
		"CHECK":     func() error { _, _, err := b.Check(t.Context(), "m", token); return err },
		"SCAN":      func() error { _, _, err := b.Scan(t.Context(), simba.ScanRequest{Held: true}); return err },
		"SUBSCRIBE": func() error { _, err := b.Subscribed(t.Context(), simba.MutexChannel("m"), false); return err },
	}
	// answered repeats a request whose connection was killed.
	answered := func(name string) (err error) {
		await(t, name+" is answered", func() bool {
			err = requests[name]()
			return !isUnavailable(err)
		})
		return err
	}
	writes := []string{"ACQUIRE", "GUARD"}
	var all []string
	for name := range requests {
		all = append(all, name)
	}
	for name, c := range map[string]struct {
		break_, mend []string
		want         string
		fails        []string
	}{
		"missing table": {
			[]string{"RENAME TABLE simba.simba_mutex TO simba.gone"}, []string{"RENAME TABLE simba.gone TO simba.simba_mutex"},
			"no table simba_mutex: start with --mysql-migrate", all,
		},
		"missing column": {
			[]string{"ALTER TABLE simba.simba_mutex CHANGE transition_at gone BIGINT UNSIGNED NOT NULL"},
			[]string{"ALTER TABLE simba.simba_mutex CHANGE gone transition_at BIGINT UNSIGNED NOT NULL"},
			"Unknown column 'transition_at'", all,
		},
		"missing privilege": {
			[]string{"REVOKE UPDATE ON simba.simba_mutex FROM u"}, []string{"GRANT UPDATE ON simba.simba_mutex TO u"},
			`user "u" lacks a privilege on table simba_mutex (Error 1142 (42000): UPDATE command denied`, writes,
		},
		"narrow column": {
			[]string{"UPDATE simba.simba_mutex SET ttl_at = 1", "ALTER TABLE simba.simba_mutex MODIFY ttl_at INT UNSIGNED NOT NULL"},
			[]string{"ALTER TABLE simba.simba_mutex MODIFY ttl_at BIGINT UNSIGNED NOT NULL"},
			"Out of range value for column 'ttl_at'", writes,
		},
		"wrong type": {
			[]string{"ALTER TABLE simba.simba_mutex MODIFY version VARCHAR(30) NOT NULL", "UPDATE simba.simba_mutex SET version = 'x'"},
			[]string{"UPDATE simba.simba_mutex SET version = '7'", "ALTER TABLE simba.simba_mutex MODIFY version BIGINT UNSIGNED NOT NULL"},
			"table simba_mutex is not Simba's (", []string{"ACQUIRE", "OWNER", "CHECK", "SUBSCRIBE"},
		},
		"wrong password": {
			[]string{"ALTER USER u IDENTIFIED BY 'falsch'"}, []string{"ALTER USER u IDENTIFIED BY 'geheim'"},
			`refuses user "u" (Error 1045`, all,
		},
		"locked account": {
			[]string{"ALTER USER u ACCOUNT LOCK"}, []string{"ALTER USER u ACCOUNT UNLOCK"},
			`refuses user "u" (Error 4151`, all,
		},
		"missing database": {
			[]string{"RENAME TABLE simba.simba_mutex TO elsewhere.simba_mutex", "DROP DATABASE simba"},
			[]string{"CREATE DATABASE simba", "RENAME TABLE elsewhere.simba_mutex TO simba.simba_mutex"},
			`no database "simba"`, all,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, sql := range c.break_ {
				must(t, db, sql)
			}
			// Open connections would stay logged in. KILL also ends the connection of a background
			// refresh.
			must(t, db, "KILL USER u")
			b.store.reconnect()
			<-time.After(200 * time.Millisecond) // by then, a new waiter does not count on an earlier read
			for _, name := range c.fails {
				// The checks of the table may have refused it before the request.
				if err := answered(name); !isMisconfigured(err, c.want) && !isMisconfigured(err, "simba_mutex") || strings.Contains(err.Error(), "geheim") {
					t.Errorf("%s at the misconfigured database: %v; want a MisconfiguredError with %q", name, err, c.want)
				}
			}
			for _, sql := range c.mend {
				must(t, db, sql)
			}
			for name := range requests {
				await(t, name+" succeeds at the corrected database", func() bool { return requests[name]() == nil })
			}
		})
	}
}

func TestRefusedConnectionNamesTheLimit(t *testing.T) {
	for _, number := range []uint16{1040, 1203, 1226} {
		f := endpoint{"u", "h:3306", "simba"}.fault(&mysqldriver.MySQLError{Number: number, Message: "Too many connections"})
		if f == nil || !strings.Contains(f.Error(), "raise max_connections") {
			t.Errorf("the fault of error %d is %v; want one that names max_connections", number, f)
		}
	}
}
