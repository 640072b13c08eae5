package postgres

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/credentials"
)

// Schema creates the table and the sequence, for --postgres-migrate.
//
//go:embed init-simba-postgres.sql
var Schema string

// Backend keeps mutexes in a table of PostgreSQL. It implements simba.Backend and is safe for
// concurrent use.
type Backend struct {
	*proxy.Engine

	store  *store
	source *credentials.Source[target]
}

// CertificatesExpire returns when the certificates of the connections expire, by setting.
func (b *Backend) CertificatesExpire() map[string]time.Time { return b.source.Get().expires }

// Open connects to the database and checks its version, its settings, the table and the role's
// rights. An error has one line, says what to do, and never contains the password. Open logs a
// warning for each setting that weakens the engine's guarantees.
func Open(ctx context.Context, o Options) (*Backend, error) {
	o.SetDefaults(name)
	s := &store{timeout: o.Timeout, migrate: o.Migrate, clock: proxy.NewClock()}
	validate := func(ctx context.Context, c *pgconn.PgConn) error {
		rows, err := run(ctx, c, "SELECT "+node)
		if err == nil {
			err = s.checkNode(rows[0])
		}
		return err
	}
	source, err := openSource(o, "postgres-url", o.URL, o.Reread, validate)
	listen := source
	if err == nil && o.ListenURL != "" {
		listen, err = openSource(o, "postgres-listen-url", o.ListenURL, o.RereadListen, validate)
	}
	if err != nil {
		return nil, err
	}
	s.watch = newWatch(listen, o.Logger)
	if s.pool, err = openPool(source, func() { s.hooks.Connected() }); err != nil {
		return nil, err
	}
	e, err := proxy.Open(ctx, o.Options, s)
	if err != nil {
		return nil, explain(err)
	}
	return &Backend{Engine: e, store: s, source: source}, nil
}

// Check implements proxy.Store. A node that refuses writes is an error and no fault, since a failover
// may follow.
func (s *store) Check(ctx context.Context) ([]proxy.Fault, error) {
	faults, err := s.checkServer(ctx)
	if f := fault(err); f != nil {
		return append(faults, proxy.Refused("role", "%v", f)...), nil
	}
	return faults, err
}

// checkServer checks the version and the settings of the server, and then the table.
func (s *store) checkServer(ctx context.Context) (faults []proxy.Fault, err error) {
	rows, err := s.exec(ctx, "SELECT "+node+", current_setting('server_version_num'), current_setting('server_version'),"+
		" current_setting('server_encoding'), current_setting('fsync'), current_setting('full_page_writes')")
	if err == nil {
		err = s.checkNode(rows[0])
	}
	if err != nil {
		return nil, err
	}
	v := rows[0][2:]
	if number(v[0]) < 130000 {
		return proxy.Refused("server_version", "the server's version is %s: the engine needs PostgreSQL 13 or later", v[1]), nil
	}
	if encoding := string(v[2]); encoding != "UTF8" {
		return proxy.Refused("server_encoding", "the encoding of the database is %s, which does not hold all names: create a database with ENCODING 'UTF8'", encoding), nil
	}
	for i, setting := range []string{"fsync", "full_page_writes"} {
		if string(v[3+i]) == "off" {
			faults = append(faults, proxy.Fault{Setting: setting, Text: setting + " is off: a crash of the database's machine can undo acknowledged grants, or destroy the table"})
		}
	}
	found, err := s.checkTable(ctx)
	return append(faults, found...), err
}

// checkTable checks the table, the sequence and the role's rights to them.
func (s *store) checkTable(ctx context.Context) ([]proxy.Fault, error) {
	rows, err := s.exec(ctx, `
		SELECT r.relkind, r.relpersistence, q.relkind, q.relpersistence,
			(SELECT seqincrement = 1 AND seqcache = 1 AND NOT seqcycle FROM pg_sequence WHERE seqrelid = q.oid),
			(SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, NULL) || coalesce(' COLLATE "' || replace(o.collname, 'POSIX', 'C') || '"', ''), ', ' ORDER BY a.attnum)
				FROM pg_attribute a LEFT JOIN pg_collation o ON o.oid = a.attcollation
				WHERE a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped),
			EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum = i.indkey[0]
				WHERE i.indrelid = r.oid AND a.attname = 'mutex' AND i.indisunique AND i.indisvalid AND i.indimmediate
				AND i.indnkeyatts = 1 AND i.indpred IS NULL),
			(SELECT string_agg(p, ', ') FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p WHERE NOT has_table_privilege(r.oid, p)),
			has_sequence_privilege(q.oid, 'USAGE'), current_user
		FROM (SELECT) one LEFT JOIN pg_class r ON r.oid = to_regclass('simba_mutex') LEFT JOIN pg_class q ON q.oid = to_regclass('simba_token')`)
	if err != nil {
		return nil, err
	}
	v := make([]string, len(rows[0])) // "" = NULL
	for i, text := range rows[0] {
		v[i] = string(text)
	}
	role := v[9]
	switch {
	case v[0] == "":
		return proxy.Refused("simba_mutex", "role %q sees no table simba_mutex in its search_path: %s", role, migrateHint), nil
	case v[0] != "r":
		return proxy.Refused("simba_mutex", "simba_mutex is not an ordinary table: rename it, and %s", migrateHint), nil
	case v[1] != "p":
		return proxy.Refused("simba_mutex", "table simba_mutex does not survive a crash: ALTER TABLE simba_mutex SET LOGGED"), nil
	case v[2] != "S":
		return proxy.Refused("simba_token", "role %q sees no sequence simba_token in its search_path: %s", role, migrateHint), nil
	case v[3] != "p":
		return proxy.Refused("simba_token", "sequence simba_token does not survive a crash: ALTER SEQUENCE simba_token SET LOGGED"), nil
	case v[4] != "t":
		return proxy.Refused("simba_token", "sequence simba_token does not count one by one in all sessions: ALTER SEQUENCE simba_token INCREMENT 1 CACHE 1 NO CYCLE"), nil
	}
	const want = `mutex text COLLATE "C", owner_id text COLLATE "C", token bigint, revision bigint, mark bigint, acquired_at bigint, ttl_at bigint, transition_at bigint`
	switch {
	case v[5] != want:
		return proxy.Refused("simba_mutex", "table simba_mutex has the columns (%s), but simba-resp needs (%s): change them, or rename the table, and %s", v[5], want, migrateHint), nil
	case v[6] != "t":
		return proxy.Refused("simba_mutex", "table simba_mutex: column mutex is not its primary key"), nil
	case v[7] != "":
		return proxy.Refused("simba_mutex", "role %q lacks %s on table simba_mutex: GRANT %[2]s ON simba_mutex TO %[1]q", role, v[7]), nil
	case v[8] != "t":
		return proxy.Refused("simba_token", "role %q lacks USAGE on sequence simba_token: GRANT USAGE ON SEQUENCE simba_token TO %[1]q", role), nil
	}
	return nil, nil
}
