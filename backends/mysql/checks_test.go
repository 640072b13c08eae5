package mysql

import (
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

func awaitFault(t *testing.T, b *Backend, setting string, refused, want bool) {
	t.Helper()
	await(t, fmt.Sprintf("the check has the fault %s: %v", setting, want), func() bool {
		return want == slices.ContainsFunc(b.Faults(), func(f proxy.Fault) bool { return f.Setting == setting && f.Refused == refused })
	})
}

// fillPool opens all connections that the pool may have.
func fillPool(t *testing.T, b *Backend) {
	t.Helper()
	var open []*sql.Conn
	for range maxConns {
		c, err := b.store.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	for _, c := range open {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConnectionsOfARefusedBinlogFormatAreNotKept(t *testing.T) {
	store := stores.MariaDB(t, "--log-bin=binlog", "--binlog-format=ROW")
	db := direct(t, store, "")
	b := serve(t, store.Addr, nil)
	must(t, db, "SET GLOBAL binlog_format = STATEMENT")
	b.store.reconnect()
	if _, _, err := b.Acquire(t.Context(), request("job", "a", long)); !isMisconfigured(err, "binlog_format is STATEMENT") {
		t.Errorf("ACQUIRE: %v; want a MisconfiguredError", err)
	}
	must(t, db, "SET GLOBAL binlog_format = ROW")
	for i := range maxConns {
		take(t, b, fmt.Sprint("job ", i), "a", long)
	}
}

func TestRefusedSettingAtRunTimeBeginsNoTenure(t *testing.T) {
	store := stores.MariaDB(t, "--log-bin=binlog", "--binlog-format=ROW")
	db := direct(t, store, "")
	must(t, db, Schema)
	must(t, db, "CREATE USER u")
	must(t, db, "GRANT SELECT, INSERT, UPDATE ON simba.simba_mutex TO u")
	for name, c := range map[string]struct{ harm, mend, setting, want string }{
		"engine": {
			"ALTER TABLE simba.simba_mutex ENGINE = Aria", "ALTER TABLE simba.simba_mutex ENGINE = InnoDB",
			"simba_mutex", "uses engine Aria",
		},
		"primary key": {
			"ALTER TABLE simba.simba_mutex DROP PRIMARY KEY, ADD KEY (mutex)", "ALTER TABLE simba.simba_mutex ADD PRIMARY KEY (mutex)",
			"simba_mutex", "not its primary key",
		},
		"binary log": {
			"SET GLOBAL binlog_format = STATEMENT", "SET GLOBAL binlog_format = ROW",
			"binlog_format", "binlog_format is STATEMENT",
		},
		"missing table": {
			"RENAME TABLE simba.simba_mutex TO simba.elsewhere", "RENAME TABLE simba.elsewhere TO simba.simba_mutex",
			"simba_mutex", "no table simba_mutex",
		},
		"missing privilege": {
			"REVOKE UPDATE ON simba.simba_mutex FROM u", "GRANT UPDATE ON simba.simba_mutex TO u",
			"simba_mutex", "UPDATE command denied",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, "", func(o *Options) { o.DSN, o.Migrate, o.Poll = "u@tcp("+store.Addr+")/simba", false, 0 })
			fillPool(t, b) // the owner renews on connections from before
			take(t, b, name, "a", long)
			w := block(t, b, name, "w", long)
			must(t, db, c.harm)
			checkAgain(b)
			awaitFault(t, b, c.setting, true, true)
			<-w.Woken
			if _, err := w.Ticket.End(simba.EndWoken); !isMisconfigured(err, c.want) {
				t.Errorf("the wait: %v; want a MisconfiguredError with %q", err, c.want)
			}
			writable := !strings.HasPrefix(name, "missing")
			if o, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: name, Contender: "a", TTL: long}); writable && (err != nil || o.Status != simba.StatusRenewed) {
				t.Errorf("GUARD by the owner: %+v, %v; want renewed", o, err)
			}
			if _, _, err := b.Acquire(t.Context(), request(name+"2", "b", long)); !isMisconfigured(err, c.want) {
				t.Errorf("ACQUIRE: %v; want a MisconfiguredError with %q", err, c.want)
			}
			must(t, db, c.mend)
			awaitFault(t, b, c.setting, true, false)
			take(t, b, name+"2", "b", long)
		})
	}
}

// After a failover the connections lead to a server with another setting.
func TestServerOfANewConnectionIsChecked(t *testing.T) {
	p := stores.NewMariaDBPair(t, "--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1")
	log := new(conformance.Log)
	b := serve(t, "", func(o *Options) {
		o.DSN, o.Logger = p.DSN(p.Link().Addr()), slog.New(slog.NewTextHandler(log, nil))
	})
	must(t, direct(t, p.Other(), ""), "SET GLOBAL sync_binlog = 0")
	take(t, b, "m", "a", long)
	if len(b.Faults()) != 0 {
		t.Errorf("the server reports %v before the failover", b.Faults())
	}
	p.Failover()
	await(t, "the server reaches the new primary", func() bool {
		_, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: long})
		return err == nil
	})
	awaitFault(t, b, "sync_binlog", false, true)
	take(t, b, "m2", "b", long) // a weak setting stops nothing
	if n := log.Count("level=ERROR"); n != 1 || log.Count("setting=sync_binlog") != 1 {
		t.Errorf("the log has %d errors, want one that names sync_binlog", n)
	}
}
