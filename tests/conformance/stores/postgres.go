package stores

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/simba-resp/simba-resp/tests/need"
)

// Postgres starts a PostgreSQL with an empty database "postgres" and the superuser postgres without
// a password: see PostgresURL. Committed data survives Stop and Kill. The arguments are for the
// server, such as "-c", "max_connections=10", and override the defaults.
func Postgres(t TB, args ...string) *Server {
	t.Helper()
	s := newPostgres(t, args)
	s.runTool("initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync", "-D", s.data())
	return start(t, s)
}

// PostgresURL returns the URL of the superuser for a server, or a Link to it.
func PostgresURL(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
}

// postgresBin returns the path of a program of the server's package. Debian has it in a folder of
// the version.
func postgresBin(t TB, program string) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
	if len(found) == 0 {
		return need.Program(t, program, "postgresql")
	}
	slices.Sort(found)
	return found[len(found)-1]
}

// newPostgres returns a server without data.
func newPostgres(t TB, args []string) *Server {
	t.Helper()
	port := FreePort(t)
	s := &Server{t: t, Addr: local(port), Dir: Scratch(t), program: postgresBin(t, "postgres"), forks: true}
	if os.Geteuid() == 0 { // the server refuses to run as root
		s.as = &syscall.Credential{Uid: 65534, Gid: 65534}
		if err := os.Chown(s.Dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	s.args = append([]string{
		"-D", s.data(), "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "max_connections=300", "-c", "shared_buffers=32MB", "-c", "max_wal_size=256MB",
		"-c", "dynamic_shared_memory_type=mmap", // a killed server leaves nothing outside its folder
	}, args...)
	s.ready = func() error {
		_, err := AskPostgres(s.Addr, "SELECT 1")
		return err
	}
	return s
}

func (s *Server) data() string { return filepath.Join(s.Dir, "data") }

// runTool runs a program of PostgreSQL as the server's user.
func (s *Server) runTool(program string, args ...string) {
	s.t.Helper()
	cmd := exec.Command(postgresBin(s.t, program), args...)
	cmd.Dir = s.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", program, err, tail(string(out), 30))
	}
}

// AskPostgres runs statements as the superuser, and returns the first value of the last result.
func AskPostgres(addr, statements string) (value string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), pairTimeout)
	defer cancel()
	c, err := pgconn.Connect(ctx, PostgresURL(addr))
	if err != nil {
		return "", err
	}
	defer c.Close(ctx)
	results, err := c.Exec(ctx, statements).ReadAll()
	if err != nil || len(results) == 0 || len(results[len(results)-1].Rows) == 0 {
		return "", err
	}
	return string(results[len(results)-1].Rows[0][0]), nil
}

// PSQL runs a script of psql as the superuser.
func PSQL(t TB, s *Server, database, script string) {
	t.Helper()
	cmd := exec.Command(postgresBin(t, "psql"), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "postgres://postgres@"+s.Addr+"/"+database)
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
}

// PgBouncer starts a PgBouncer in front of a PostgreSQL, in transaction mode: it gives a session to
// another client after each transaction.
func PgBouncer(t TB, store *Server, poolSize int) *Server {
	t.Helper()
	port := FreePort(t)
	s := &Server{Addr: local(port), Dir: Scratch(t), program: need.Program(t, "pgbouncer", "pgbouncer"), as: store.as}
	if s.as != nil {
		if err := os.Chown(s.Dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(s.Dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\npostgres = host=127.0.0.1 port=%s dbname=postgres user=postgres\n[pgbouncer]\n"+
		"listen_addr = 127.0.0.1\nlisten_port = %d\nauth_type = any\npool_mode = transaction\ndefault_pool_size = %d\n"+
		"max_client_conn = 500\nunix_socket_dir =\n", portOf(store.Addr), port, poolSize)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s.args = []string{file}
	s.ready = func() error {
		_, err := AskPostgres(s.Addr, "SELECT 1")
		return err
	}
	return start(t, s)
}

func portOf(addr string) string { return addr[len("127.0.0.1:"):] }

// PostgresPair is a Pair of two PostgreSQL servers. The standby follows asynchronously.
type PostgresPair struct {
	t                TB
	link             *Link
	primary, standby *Server // between Failover and Rejoin, standby does not replicate
}

var _ Pair = (*PostgresPair)(nil)

// NewPostgresPair starts both servers and returns when the standby follows. The arguments are for
// both.
func NewPostgresPair(t TB, args ...string) *PostgresPair {
	t.Helper()
	p := &PostgresPair{t: t, primary: Postgres(t, args...), standby: newPostgres(t, args)}
	p.link = NewLink(t, p.primary.Addr)
	p.follow()
	t.Cleanup(p.standby.Kill)
	return p
}

// Link implements Pair.
func (p *PostgresPair) Link() *Link { return p.link }

// Primary implements Pair.
func (p *PostgresPair) Primary() *Server { return p.primary }

// Other implements Pair.
func (p *PostgresPair) Other() *Server { return p.standby }

// Failover implements Pair. Both servers must run, and the standby must follow.
func (p *PostgresPair) Failover() {
	p.t.Helper()
	p.ask(p.primary, "ALTER SYSTEM SET default_transaction_read_only = on")
	p.ask(p.primary, "SELECT pg_reload_conf()")
	p.await(p.primary, "no session writes any more", "SELECT current_setting('default_transaction_read_only') = 'on'"+
		" AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_xid IS NOT NULL OR state = 'active' AND pid <> pg_backend_pid() AND backend_type = 'client backend')")
	time.Sleep(20 * time.Millisecond) // a session reads the setting when it gets its next statement
	p.await(p.primary, "no session writes any more", "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_xid IS NOT NULL)")
	end := p.ask(p.primary, "SELECT pg_current_wal_lsn()")
	p.await(p.standby, "the standby has caught up", "SELECT pg_last_wal_replay_lsn() >= '"+end+"'")
	p.Promote()
}

// Promote promotes the standby, as Failover does, but leaves the old primary as it is. It goes on
// accepting writes on its own address.
func (p *PostgresPair) Promote() {
	p.t.Helper()
	p.ask(p.standby, "SELECT pg_promote()")
	p.primary, p.standby = p.standby, p.primary
	p.link.Retarget(p.primary.Addr)
}

// Rejoin implements Pair. It copies the data of the primary.
func (p *PostgresPair) Rejoin() {
	p.t.Helper()
	p.standby.Kill()
	if err := os.RemoveAll(p.standby.data()); err != nil {
		p.t.Fatal(err)
	}
	p.follow()
}

func (p *PostgresPair) follow() {
	p.t.Helper()
	p.standby.runTool("pg_basebackup", "-D", p.standby.data(), "-R", "-X", "stream", "--checkpoint=fast", "--no-sync", "-d", PostgresURL(p.primary.Addr))
	p.standby.Start()
	end := p.ask(p.primary, "SELECT pg_current_wal_lsn()")
	p.await(p.standby, "the standby has caught up", "SELECT pg_is_in_recovery() AND pg_last_wal_replay_lsn() >= '"+end+"'")
}

func (p *PostgresPair) ask(s *Server, statement string) string {
	p.t.Helper()
	value, err := AskPostgres(s.Addr, statement)
	if err != nil {
		p.t.Fatalf("PostgreSQL at %s: %s: %v", s.Addr, statement, err)
	}
	return value
}

// await waits until a condition holds.
func (p *PostgresPair) await(s *Server, what, condition string) {
	p.t.Helper()
	need.Await(p.t, what, func() bool { return p.ask(s, condition) == "t" })
}
