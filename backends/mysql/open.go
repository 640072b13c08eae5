package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/credentials"
)

// name is the engine's name in errors.
const name = "mysql"

// Backend keeps mutexes in a table of MySQL or MariaDB. It implements simba.Backend and is safe for
// concurrent use.
type Backend struct {
	*proxy.Engine

	store  *store
	source *credentials.Source[target]
}

// CertificatesExpire returns when the certificates of the connections expire, by setting.
func (b *Backend) CertificatesExpire() map[string]time.Time { return b.source.Get().expires }

// Open connects to the database and checks its version, its settings, the table and the user's
// rights. An error has one line, says what to do, and never contains the password. Open logs a
// warning for each setting that weakens the engine's guarantees.
func Open(ctx context.Context, o Options) (*Backend, error) {
	o.SetDefaults(name)
	source, err := credentials.Open(credentials.Config[target]{
		Text: o.DSN, Reread: o.Reread,
		Parse: func(dsn string) (target, error) { o := o; o.DSN = dsn; return parseDSN(o) },
		Failed: func(err error) {
			o.Logger.Error("cannot read the login or the TLS files of the database again; keeping the last ones", "err", err)
		},
	})
	if err != nil {
		return nil, err
	}
	cfg := source.Last()
	s := &store{options: o, endpoint: endpoint{cfg.User, cfg.Addr, cfg.DBName}, clock: proxy.NewClock()}
	if s.db, err = openPool(source, func() { s.hooks.Connected() }); err != nil {
		return nil, err
	}
	e, err := proxy.Open(ctx, o.Options, s)
	if err != nil {
		return nil, s.endpoint.explain(err)
	}
	return &Backend{Engine: e, store: s, source: source}, nil
}

// Check implements proxy.Store. It checks the server, and then the table. A read-only server is an
// error and no fault, since a failover may follow. Requests fail there anyway, even if the user may
// write (see query).
func (s *store) Check(ctx context.Context) ([]proxy.Fault, error) {
	faults, err := s.check(ctx)
	// Other errors do not concern the table. For example, the server refuses the login.
	if f := s.endpoint.fault(err); f != nil && strings.Contains(f.Error(), "simba_mutex") {
		return append(faults, proxy.Refused("simba_mutex", "%v", f)...), nil
	}
	return faults, err
}

// check checks the database server, its settings and the table. If it refuses a setting, it ends, since
// the server may refuse the check of the table too.
func (s *store) check(ctx context.Context) (faults []proxy.Fault, err error) {
	db := s.db
	warn := func(setting, text string) { faults = append(faults, proxy.Fault{Setting: setting, Text: text}) }
	var version string
	if err := queryRow(ctx, db, []any{&version}, "SELECT VERSION()"); err != nil {
		return nil, err
	}
	if !supported(version) {
		return proxy.Refused("version", "the server's version is %s: the engine needs MySQL 5.7, MariaDB 10.3 or later", version), nil
	}
	settings, err := variables(ctx, db, "wsrep_on", "wsrep_dirty_reads", "log_bin", "binlog_format",
		"innodb_flush_log_at_trx_commit", "sync_binlog")
	if err != nil {
		return nil, err
	}
	on := func(name string) bool {
		v := settings[name]
		return v == "1" || strings.EqualFold(v, "ON")
	}
	switch {
	case on("wsrep_on") && on("wsrep_dirty_reads"):
		return proxy.Refused("wsrep_dirty_reads", "the server answers reads while it is cut off from its cluster: set wsrep_dirty_reads to OFF"), nil
	case on("log_bin") && strings.EqualFold(settings["binlog_format"], "STATEMENT"):
		return proxy.Refused("binlog_format", "%v", errStatements), nil
	}
	if v := settings["innodb_flush_log_at_trx_commit"]; v != "" && v != "1" {
		warn("innodb_flush_log_at_trx_commit", "innodb_flush_log_at_trx_commit is "+v+", not 1: a crash of the database's machine can undo acknowledged grants")
	}
	if v := settings["sync_binlog"]; on("log_bin") && v != "1" {
		warn("sync_binlog", "sync_binlog is "+v+", not 1: with the binary log on, a crash of the database's machine can undo acknowledged grants")
	}
	var fixed bool
	if err := queryRow(ctx, db, []any{new(int), &fixed}, "SELECT SLEEP(0.002), SYSDATE(6) = NOW(6)"); err != nil {
		return nil, err
	}
	if fixed {
		warn("sysdate-is-now", "the server runs with sysdate-is-now: a renewal that waits for another transaction can revive a lease whose end was reported")
	}
	if on("wsrep_on") {
		warn("wsrep_on", "the server is a node of a Galera cluster: let every simba-resp use the same node, or set wsrep_sync_wait; otherwise a read may be stale")
	}
	privilege, err := readOnlyBypass(ctx, db)
	if err != nil {
		return nil, err
	}
	if privilege != "" {
		warn("user", fmt.Sprintf("user %q may write to a server that is read_only (%s): after a failover, the old primary can still grant; "+
			"give simba-resp a user with SELECT, INSERT, UPDATE on simba_mutex only", s.endpoint.user, privilege))
	}
	t, err := checkTable(ctx, db)
	if err == nil {
		s.table.Store(&t)
	}
	return faults, err
}

// variables returns global variables of the server, without those that the server does not have.
func variables(ctx context.Context, db *sql.DB, names ...string) (map[string]string, error) {
	rows, err := query(ctx, db, "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('"+strings.Join(names, "', '")+"')")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	values := make(map[string]string)
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		values[strings.ToLower(name)] = value
	}
	return values, rows.Err()
}

// supported reports whether a version is MySQL 5.7, MariaDB 10.3 or later.
func supported(version string) bool {
	maria := strings.Contains(strings.ToLower(version), "mariadb")
	if maria {
		version = strings.TrimPrefix(version, "5.5.5-") // MariaDB adds it for old replicas
	}
	var major, minor int
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor) // they stay 0 if the version has another form
	if maria {
		return major > 10 || major == 10 && minor >= 3
	}
	return major > 5 || major == 5 && minor >= 7
}
