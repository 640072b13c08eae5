package mysql

import (
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

const (
	// testPoll is Options.Poll in the suite. It is short, so that a server soon notices a release
	// by another server.
	testPoll = 50 * time.Millisecond
	// testTimeout is Options.Timeout in the suite.
	testTimeout = time.Second
	// testLatency is how late the engine may notice an expiry, since refreshDelay is random.
	testLatency = 1300 * time.Millisecond
)

// If the database has no table, the engine creates its own. It adds the column fencing_token to the table
// of Simba up to 3.2.
func suiteEngine(t *testing.T, store *stores.Server) conformance.Engine {
	return polling(t, store, testPoll)
}

func polling(t *testing.T, store *stores.Server, poll time.Duration) conformance.Engine {
	link := stores.NewLink(t, store.Addr)
	open := func(addr string) conformance.Opener {
		return func(t testing.TB, n simba.Notices, timeout time.Duration) conformance.Backend {
			t.Helper()
			return openSoon(t, Options{DSN: dsn(addr), Migrate: true, Options: proxy.Options{Poll: poll, Timeout: timeout, Notices: n}})
		}
	}
	return conformance.Engine{
		Name: "mysql", Shared: true, Link: link,
		Open: open(link.Addr()), Direct: open(store.Addr),
		PollLatency: testLatency, Timeout: testTimeout,
		Harm: func(t testing.TB, _ string) func() {
			db := direct(t, store, "")
			must(t, db, "RENAME TABLE simba.simba_mutex TO simba.elsewhere")
			return func() { must(t, db, "RENAME TABLE simba.elsewhere TO simba.simba_mutex") }
		},
	}
}

func dsn(addr string) string { return "root@tcp(" + addr + ")/simba" }

func TestConformance(t *testing.T) { conformance.Run(t, suiteEngine(t, stores.MariaDB(t))) }

// With a Poll of 0, the engine reads the row again only around the end of the lease (see
// refreshDelay). So no earlier refresh hides a lost wake-up. A server notices changes by other
// servers too late for a test, so the suite runs with one server.
func TestConformanceAtTheContentionTiming(t *testing.T) {
	e := polling(t, stores.MariaDB(t), 0)
	e.Shared, e.Direct = false, nil
	conformance.Run(t, e)
}

func TestConformanceOnTheSeedsTable(t *testing.T) {
	conformance.Run(t, suiteEngine(t, serverWithTable(t, seeds.MySQLTable)))
}

// TestConformanceOnTheSeedsTableWithTokens uses the table of Simba 3.3 and later.
func TestConformanceOnTheSeedsTableWithTokens(t *testing.T) {
	conformance.Run(t, suiteEngine(t, serverWithTable(t, seeds.MySQLFencedTable)))
}

func TestNoTwoOwnersWhileTheDatabaseIsKilled(t *testing.T) {
	store := stores.MariaDB(t)
	conformance.Hammer(t, suiteEngine(t, store), 10*time.Second, time.Second, func() {
		store.Kill()
		store.Start()
	})
}
