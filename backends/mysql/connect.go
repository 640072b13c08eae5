package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/simba-resp/simba-resp/credentials"
)

const (
	// maxConns bounds the connections to the database. Further requests wait for a free one until
	// their deadline.
	maxConns = 32
	// maxIdle is how long an unused connection is kept. It is well below the idle limits of common
	// firewalls.
	maxIdle = 3 * time.Minute
)

// lockWait is how long a statement waits for a locked row, and tableWait how long it waits for a
// locked table, twice at most: when it begins and when it commits. The database counts whole seconds.
const (
	lockWait  = time.Second
	tableWait = 2 * time.Second
)

// settings are the session settings that the engine needs. A new connection runs them after the
// settings of the DSN, which they override.
// The server must not truncate values, and quoting must be what the driver assumes. READ WRITE is needed
// because a server that accepts writes may still make new sessions read-only by default.
const settings = "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', autocommit = 1, innodb_lock_wait_timeout = 1, lock_wait_timeout = 2;" +
	" SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"

// fileParameter matches a parameter that the driver does not know. Its path may have slashes, which
// the driver would take for the one before the database.
var fileParameter = regexp.MustCompile(`([?&])(tls-ca|tls-cert|tls-key)=([^&]*)`)

// target is a parsed DSN.
type target struct {
	*mysqldriver.Config
	expires map[string]time.Time // when the certificates of the TLS files expire, by setting
}

// parseDSN parses a DSN and adds what the engine needs. A DSN contains a password, so errors show
// nothing of the DSN but names of parameters and paths of TLS files.
func parseDSN(o Options) (t target, err error) {
	if o.DSN == "" {
		return t, errors.New("no DSN: expected user:password@tcp(host:3306)/database")
	}
	files := map[string]credentials.File{
		"tls-ca": {Setting: "mysql-dsn tls-ca"}, "tls-cert": {Setting: "mysql-dsn tls-cert"}, "tls-key": {Setting: "mysql-dsn tls-key"},
	}
	for _, m := range fileParameter.FindAllStringSubmatch(o.DSN, -1) {
		files[m[2]] = credentials.File{Setting: files[m[2]].Setting, Path: m[3]}
	}
	dsn := fileParameter.ReplaceAllString(o.DSN, "$1")
	base, params := dsn, ""
	if slash := strings.LastIndexByte(dsn, '/'); slash >= 0 {
		if mark := strings.IndexByte(dsn[slash:], '?'); mark >= 0 {
			base, params = dsn[:slash+mark], dsn[slash+mark+1:]
		}
	}
	// If the DSN has no '@', the driver takes the user and password for the name of a network, and
	// shows this name in errors.
	networks := []string{"tcp", "tcp4", "tcp6", "unix"}
	if cfg, err := mysqldriver.ParseDSN(base); err != nil || !slices.Contains(networks, cfg.Net) {
		return t, errors.New("invalid DSN: expected user:password@tcp(host:3306)/database")
	}
	for param := range strings.SplitSeq(params, "&") {
		key, _, ok := strings.Cut(param, "=")
		if key == "strict" { // the driver panics on it
			ok = false
		}
		if ok {
			_, err := mysqldriver.ParseDSN("/?" + param)
			ok = err == nil
		}
		if param != "" && !ok {
			return t, fmt.Errorf("invalid DSN: parameter %q", key)
		}
	}
	cfg, err := mysqldriver.ParseDSN(dsn)
	if err != nil {
		return t, errors.New("invalid DSN: conflicting parameters")
	}
	if cfg.DBName == "" {
		return t, errors.New("the DSN names no database: expected user:password@tcp(host:3306)/database")
	}
	if dsn != o.DSN {
		host, _, _ := net.SplitHostPort(cfg.Addr)
		cfg.TLS, t.expires, err = credentials.TLS(files["tls-ca"], files["tls-cert"], files["tls-key"], host)
		if err != nil {
			return t, err
		}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = o.Timeout
	}
	cfg.ClientFoundRows = true   // RowsAffected counts matched rows, even if unchanged
	cfg.InterpolateParams = true // one round trip for each statement
	cfg.RejectReadOnly = false   // with true, the driver would repeat requests itself
	cfg.MultiStatements = true   // query sends two statements at once
	cfg.Logger = driverLog{o.Logger}
	if err := cfg.Apply(mysqldriver.Charset("utf8mb4", "")); err != nil {
		return t, err
	}
	t.Config = cfg
	return t, nil
}

// openPool opens the pool. It calls connected for each new connection.
func openPool(source *credentials.Source[target], connected func()) (*sql.DB, error) {
	cfg := source.Last().Clone()
	err := cfg.Apply(mysqldriver.BeforeConnect(func(_ context.Context, c *mysqldriver.Config) error {
		fresh := source.Get()
		c.User, c.Passwd, c.TLS = fresh.User, fresh.Passwd, fresh.TLS
		return nil
	}))
	if err != nil {
		return nil, err
	}
	c, err := mysqldriver.NewConnector(cfg)
	if err != nil {
		return nil, errors.New("invalid DSN: conflicting parameters")
	}
	db := sql.OpenDB(connector{c, connected})
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	db.SetConnMaxIdleTime(maxIdle)
	return db, nil
}

type connector struct {
	driver.Connector
	connected func()
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = conn.(driver.ExecerContext).ExecContext(ctx, settings, nil); err == nil {
		err = checkFormat(ctx, conn)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	c.connected()
	return conn, nil
}

// checkFormat returns errStatements if the server refuses writes on a new connection. A connection
// keeps the global binlog_format that it began with, so in the pool it would stay unusable after an
// operator has changed it.
func checkFormat(ctx context.Context, conn driver.Conn) error {
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, "SHOW VARIABLES WHERE Variable_name = 'log_bin' AND Value = 'ON'"+
		" OR Variable_name = 'binlog_format' AND Value = 'STATEMENT'", nil)
	if err != nil {
		return err
	}
	n, row := 0, make([]driver.Value, 2)
	for err = rows.Next(row); err == nil; err = rows.Next(row) {
		n++
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err = errors.Join(err, rows.Close()); err == nil && n == 2 {
		err = errStatements
	}
	return err
}

// driverLog logs the driver's reports of broken connections. Requests report them as errors too.
type driverLog struct{ log *slog.Logger }

func (l driverLog) Print(v ...any) { l.log.Debug("mysql driver", "text", fmt.Sprint(v...)) }
