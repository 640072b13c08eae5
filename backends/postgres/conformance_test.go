package postgres

import (
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

const (
	// testTimeout is Options.Timeout in the suite.
	testTimeout = time.Second
	// testLatency is how late the engine may notice an expiry, since proxy reads the row at a random
	// time after it.
	testLatency = 1300 * time.Millisecond
)

func suiteEngine(t *testing.T, store *stores.Server) conformance.Engine {
	link := stores.NewLink(t, store.Addr)
	open := func(addr string) conformance.Opener {
		return func(t testing.TB, n simba.Notices, timeout time.Duration) conformance.Backend {
			t.Helper()
			return openSoon(t, Options{URL: stores.PostgresURL(addr), Migrate: true, Options: proxy.Options{Timeout: timeout, Notices: n}})
		}
	}
	return conformance.Engine{
		Name: "postgres", Shared: true, Link: link,
		Open: open(link.Addr()), Direct: open(store.Addr),
		PollLatency: testLatency, Timeout: testTimeout,
		Harm: func(t testing.TB, _ string) func() {
			direct(t, store, "ALTER TABLE simba_mutex RENAME TO elsewhere")
			return func() { direct(t, store, "ALTER TABLE elsewhere RENAME TO simba_mutex") }
		},
	}
}

func TestConformance(t *testing.T) { conformance.Run(t, suiteEngine(t, stores.Postgres(t))) }

// TestConformanceThroughPgBouncer runs the suite in transaction mode, where no notices arrive.
func TestConformanceThroughPgBouncer(t *testing.T) {
	e := suiteEngine(t, stores.PgBouncer(t, stores.Postgres(t), 20))
	conformance.Run(t, e)
}

func TestNoTwoOwnersWhileTheDatabaseIsKilled(t *testing.T) {
	store := stores.Postgres(t)
	conformance.Hammer(t, suiteEngine(t, store), 10*time.Second, time.Second, func() {
		store.Kill()
		store.Start()
	})
}
