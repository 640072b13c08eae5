package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
)

const (
	// maxConns bounds the connections to the database. Requests beyond it wait for
	// one, as long as their deadline allows.
	maxConns = 32
	// maxIdle is how long a connection that nobody needs is kept, well below the
	// idle limits of common firewalls.
	maxIdle = 3 * time.Minute
)

// settings are what the engine needs of every connection. They come after those of
// the DSN, so they win over them.
var settings = []string{
	// Nothing may be cut or wrap, and quoting must be what the driver takes it for.
	`SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', autocommit = 1, ` + lockWaitSetting,
	// READ WRITE, since what the server has for new sessions says nothing of the server.
	`SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE`,
}

// parseDSN reads a DSN and makes of it what the engine needs. Its errors never show
// what the DSN contains but the names of parameters: it has a password in it.
func parseDSN(o Options) (*mysqldriver.Config, error) {
	if o.DSN == "" {
		return nil, errors.New("no DSN: expected user:password@tcp(host:3306)/database")
	}
	base, params := o.DSN, ""
	if slash := strings.LastIndexByte(o.DSN, '/'); slash >= 0 {
		if mark := strings.IndexByte(o.DSN[slash:], '?'); mark >= 0 {
			base, params = o.DSN[:slash+mark], o.DSN[slash+mark+1:]
		}
	}
	if _, err := mysqldriver.ParseDSN(base); err != nil {
		return nil, errors.New("invalid DSN: expected user:password@tcp(host:3306)/database")
	}
	for param := range strings.SplitSeq(params, "&") {
		key, _, ok := strings.Cut(param, "=")
		if key == "strict" { // on which the driver panics
			ok = false
		}
		if ok {
			_, err := mysqldriver.ParseDSN("/?" + param)
			ok = err == nil
		}
		if params != "" && !ok {
			return nil, fmt.Errorf("invalid DSN: parameter %q", key)
		}
	}
	cfg, err := mysqldriver.ParseDSN(o.DSN)
	if err != nil {
		return nil, errors.New("invalid DSN: parameters that do not go together")
	}
	if cfg.DBName == "" {
		return nil, errors.New("the DSN names no database: expected user:password@tcp(host:3306)/database")
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = o.Timeout
	}
	cfg.ClientFoundRows = true   // a renewal that changes nothing still counts
	cfg.InterpolateParams = true // one round trip a statement
	cfg.RejectReadOnly = false   // would ask again by itself
	cfg.MultiStatements = true   // a read comes with its proof: see query
	cfg.Logger = driverLog{o.Logger}
	if err := cfg.Apply(mysqldriver.Charset("utf8mb4", "")); err != nil {
		return nil, err
	}
	return cfg, nil
}

// openPool makes the pool. It does not connect yet.
func openPool(cfg *mysqldriver.Config) (*sql.DB, error) {
	c, err := mysqldriver.NewConnector(cfg)
	if err != nil {
		return nil, errors.New("invalid DSN: parameters that do not go together")
	}
	db := sql.OpenDB(connector{c})
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	db.SetConnMaxIdleTime(maxIdle)
	return db, nil
}

// connector makes connections that have the engine's settings.
type connector struct{ driver.Connector }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range settings {
		if _, err := conn.(driver.ExecerContext).ExecContext(ctx, s, nil); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

// driverLog takes what the driver says of connections that broke, which is told as
// an error of some request too.
type driverLog struct{ log *slog.Logger }

func (l driverLog) Print(v ...any) { l.log.Debug("mysql driver", "msg", fmt.Sprint(v...)) }
