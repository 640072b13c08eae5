package transcripts

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// everyCommand sends commands for which an engine needs every right in its store.
func everyCommand(t *testing.T, s *simbatest.Server) {
	t.Helper()
	c := simbatest.Conn(t, s)
	simbatest.Subscribe(t, s, "SUBSCRIBE", "simba:{job}", "simba:{job}:b", "simba-events:{job}")
	simbatest.Subscribe(t, s, "PSUBSCRIBE", "simba*")
	simbatest.DoRecord(t, c, "SIMBA.ACQUIRE", "job", "a", 600_000)
	w := simbatest.Wait(t, s, "job", "b")
	simbatest.DoRecord(t, c, "SIMBA.GUARD", "job", "a", 600_000)
	simbatest.DoRecord(t, c, "SIMBA.ACQUIRE", "job", "c", 600_000)
	for _, command := range [][]any{{"SIMBA.QUEUE", "job"}, {"SIMBA.SCAN", 0}, {"SIMBA.OWNER", "job"}, {"SIMBA.HISTORY", "job"}, {"DBSIZE"}, {"SIMBA.CHECK", "job", 1}} {
		if _, err := c.Do(command[0].(string), command[1:]...); err != nil {
			t.Errorf("%v returns the error %v, want none", command, err)
		}
	}
	simbatest.DoOne(t, c, "SIMBA.RELEASE", "job", "a")
	w.Granted(t)
	simbatest.DoOne(t, c, "SIMBA.BREAK", "job")
	if log := s.Output(); strings.Contains(log, "NOPERM") || strings.Contains(log, "denied") {
		t.Errorf("the log has a warning:\n%s", log)
	}
}

func TestTheDocumentedRedisUserHasEnoughRights(t *testing.T) {
	store := stores.Redis(t, "--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")
	admin, err := redis.Dial("tcp", store.Addr)
	simbatest.Must(t, err)
	defer admin.Close()
	for _, line := range simbatest.DocsBlock(t, "guides/redis.md", "redis-acl") {
		words := strings.Fields(line)
		args := make([]any, len(words)-1)
		for i, word := range words[1:] {
			args[i] = word
		}
		if _, err := admin.Do(words[0], args...); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	s := simbatest.Start(t, "--engine", "redis", "--redis-url", "redis://simba:password@"+store.Addr)
	everyCommand(t, s)
	// With the documented settings, the server logs no warning.
	if log := s.Output(); strings.Contains(log, "level=WARN") {
		t.Errorf("the log has a warning:\n%s", log)
	}
}

func TestTheDocumentedPostgresRolesAreEnough(t *testing.T) {
	store := stores.Postgres(t)
	block := func(name string) string {
		return strings.Join(simbatest.DocsBlock(t, "guides/postgres.md", name), "\n")
	}
	url := "postgres://simba:password@" + store.Addr + "/simba?sslmode=disable"
	stores.PSQL(t, store, "postgres", block("postgres-role"))
	everyCommand(t, simbatest.Start(t, "--engine", "postgres", "--postgres-url", url, "--postgres-migrate"))
	stores.PSQL(t, store, "simba", "DROP SCHEMA simba CASCADE;")
	stores.PSQL(t, store, "simba", block("postgres-table"))
	s := simbatest.Start(t, "--engine", "postgres", "--postgres-url", url)
	everyCommand(t, s)
	if log := s.Output(); strings.Contains(log, "level=WARN") {
		t.Errorf("the log has a warning:\n%s", log)
	}
}

func TestTheDocumentedMySQLGrantsAreEnough(t *testing.T) {
	store := stores.MariaDB(t, "--innodb-flush-log-at-trx-commit=1")
	db, err := sql.Open("mysql", "root@tcp("+store.Addr+")/")
	simbatest.Must(t, err)
	defer db.Close()
	// The guide creates the database.
	if _, err := db.ExecContext(t.Context(), "DROP DATABASE simba"); err != nil {
		t.Fatal(err)
	}
	for _, statement := range simbatest.DocsBlock(t, "guides/mysql.md", "mysql-grants") {
		if _, err := db.ExecContext(t.Context(), strings.TrimSuffix(statement, ";")); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	for _, before := range []string{
		"SET @nothing = 0", // no change: the server must create the table
		"ALTER TABLE simba.simba_mutex DROP COLUMN fencing_token",
	} {
		if _, err := db.ExecContext(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		everyCommand(t, simbatest.Start(t, "--engine", "mysql", "--mysql-dsn", "simba:password@tcp("+store.Addr+")/simba", "--mysql-migrate"))
	}
}
