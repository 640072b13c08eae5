package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"strings"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

func TestOpenErrorsAreOneLine(t *testing.T) {
	store := stores.MariaDB(t)
	db := direct(t, store, "")
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	closed.Close()
	for _, sql := range []string{
		"CREATE USER u IDENTIFIED BY 'geheim'", "CREATE USER stranger IDENTIFIED BY 'geheim'",
		"GRANT SELECT ON simba.* TO u",
		"CREATE DATABASE empty", "GRANT ALL ON empty.* TO u",
		"CREATE DATABASE old", "CREATE DATABASE narrow", "CREATE DATABASE keyless", "CREATE DATABASE aria", "CREATE DATABASE bytes",
		Schema,
		"CREATE TABLE old.simba_mutex (mutex VARCHAR(66) PRIMARY KEY, owner_id CHAR(32))",
		"CREATE TABLE narrow.simba_mutex (mutex VARCHAR(66) PRIMARY KEY, acquired_at INT UNSIGNED, ttl_at BIGINT, transition_at BIGINT, owner_id CHAR(32), version INT)",
		"CREATE TABLE aria.simba_mutex (mutex VARCHAR(66) PRIMARY KEY, acquired_at BIGINT, ttl_at BIGINT, transition_at BIGINT, owner_id CHAR(32), version INT, fencing_token BIGINT NOT NULL DEFAULT 0) ENGINE = Aria",
		"CREATE TABLE bytes.simba_mutex (mutex BINARY(66) PRIMARY KEY, acquired_at BIGINT, ttl_at BIGINT, transition_at BIGINT, owner_id CHAR(32), version INT)",
		"CREATE TABLE keyless.simba_mutex (mutex VARCHAR(66), acquired_at BIGINT, ttl_at BIGINT, transition_at BIGINT, owner_id CHAR(32), version INT, fencing_token BIGINT NOT NULL DEFAULT 0)",
	} {
		must(t, db, sql)
	}
	at := "tcp(" + store.Addr + ")/"
	for name, c := range map[string]struct{ dsn, want string }{
		"no DSN":                       {"", "no DSN"},
		"no slash before the database": {"u:geheim@tcp(" + store.Addr + ")", "invalid DSN: expected"},
		"no @ before tcp":              {"u:geheim/simba", "invalid DSN: expected"},
		"unknown network":              {"u:geheim@udp/simba", "invalid DSN: expected"},
		"no @ before an address":       {"u:geheim(h:3306)/simba", "invalid DSN: expected"},
		"bad parameter":                {"u:geheim@" + at + "simba?timeout=soon", `invalid DSN: parameter "timeout"`},
		"strict":                       {"u:geheim@" + at + "simba?strict=true", `invalid DSN: parameter "strict"`},
		"unknown TLS":                  {"u:geheim@" + at + "simba?tls=geheim", `invalid DSN: parameter "tls"`},
		"unknown setting":              {"u:geheim@" + at + "simba?no_such=1", "no_such"},
		"no database":                  {"u:geheim@" + at, "names no database"},
		"unreachable":                  {"u:geheim@tcp(" + closed.Addr().String() + ")/simba", "cannot reach the database at " + closed.Addr().String()},
		"wrong password":               {"u:falsch-geheim@" + at + "simba", `refuses user "u"`},
		"unknown database":             {"root@" + at + "nowhere", `no database "nowhere"`},
		"no right to the database":     {"stranger:geheim@" + at + "simba", `no privilege on database "simba"`},
		"no right to write":            {"u:geheim@" + at + "simba", "UPDATE command denied"},
		"no table":                     {"u:geheim@" + at + "empty", "--mysql-migrate"},
		"missing column":               {"root@" + at + "old", "no column acquired_at"},
		"wrong type":                   {"root@" + at + "narrow", "column acquired_at is int(10) unsigned, expected BIGINT UNSIGNED"},
		"bytes":                        {"root@" + at + "bytes", "column mutex is binary(66), expected VARCHAR"},
		"not InnoDB":                   {"root@" + at + "aria", "table simba_mutex uses engine Aria: run ALTER TABLE simba_mutex ENGINE = InnoDB"},
		"not the primary key":          {"root@" + at + "keyless", "not its primary key"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := Open(t.Context(), Options{DSN: c.dsn, Options: proxy.Options{Notices: conformance.NewBroker()}})
			if err == nil {
				b.Close()
				t.Fatal("Open succeeded, want an error")
			}
			text := err.Error()
			if !strings.Contains(text, c.want) || strings.Contains(text, "\n") || strings.Contains(text, "geheim") || strings.Contains(text, ".sql") {
				t.Errorf("Open: %q; want one line with %q, without a password and without a file of the source", text, c.want)
			}
		})
	}
	t.Run("settings of the DSN don't disturb", func(t *testing.T) {
		b := serve(t, store.Addr, func(o *Options) {
			o.DSN += "?time_zone=%27-09:00%27&sql_mode=%27%27&autocommit=0&innodb_lock_wait_timeout=50&clientFoundRows=false" +
				"&interpolateParams=false&collation=big5_chinese_ci&multiStatements=true&parseTime=true&rejectReadOnly=true"
		})
		take(t, b, "settings", "a", long)
		if o := ownerOf(t, serve(t, store.Addr, nil), "settings"); o.Owner != "a" {
			t.Errorf("OWNER at a server without the settings: %+v; want a", o)
		}
	})
}

func TestOldServersAreRefused(t *testing.T) {
	for version, ok := range map[string]bool{
		"5.6.51-log": false, "5.7.44": true, "8.0.36-0ubuntu0.22.04.1": true, "8.4.0": true, "9.1.0": true,
		"10.2.44-MariaDB": false, "5.5.5-10.3.39-MariaDB-log": true, "10.11.19-MariaDB-0+deb12u1": true, "11.4.2-MariaDB": true,
		"5.5.68-MariaDB": false, "": false, "unknown": false,
	} {
		if supported(version) != ok {
			t.Errorf("supported(%q) is %v, want %v", version, !ok, ok)
		}
	}
}

// unreadable opens connections on which the server's variables cannot be read.
type unreadable struct{ driver.Connector }

func (c unreadable) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return unreadableConn{conn}, err
}

type unreadableConn struct{ driver.Conn }

func (c unreadableConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if strings.Contains(query, "VARIABLES") {
		return nil, errors.New("cannot read variables")
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

// Open does not use a server whose settings it cannot check.
func TestUnreadableSettingFailsOpen(t *testing.T) {
	cfg, err := parseDSN(Options{DSN: dsn(stores.MariaDB(t).Addr)})
	noError(t, err)
	c, err := mysqldriver.NewConnector(cfg.Config)
	noError(t, err)
	db := sql.OpenDB(unreadable{c})
	defer db.Close()
	if _, err := (&store{db: db}).check(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot read variables") {
		t.Errorf("check: %v; want the error \"cannot read variables\"", err)
	}
}
