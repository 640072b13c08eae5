package mysql

import (
	"errors"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/leaks"
	"github.com/simba-resp/simba-resp/tests/need"
)

func TestMain(m *testing.M) { leaks.Exit(m.Run()) }

// serveTimeout is the Options.Timeout of most tests. It is long, so that no request fails on a busy
// machine. Tests of missed deadlines use testTimeout.
const serveTimeout = time.Minute

// serve opens one more server on the store. set changes its options.
func serve(t testing.TB, addr string, set func(*Options)) *Backend {
	t.Helper()
	o := Options{DSN: dsn(addr), Migrate: true, Options: proxy.Options{Poll: testPoll, Timeout: serveTimeout, Notices: conformance.NewBroker(), HandoffWindow: time.Second, QueueGrace: 5 * time.Second}}
	if set != nil {
		set(&o)
	}
	b := openSoon(t, o)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v; want no error", err)
		}
	})
	return b
}

func openSoon(t testing.TB, o Options) *Backend {
	t.Helper()
	return conformance.OpenSoon(t, func() (*Backend, error) { return Open(t.Context(), o) })
}

const long = 10 * time.Minute

// The calls that every test uses.
var (
	request = conformance.Request
	take    = conformance.Take
	release = conformance.Release
	ownerOf = conformance.OwnerOf
	block   = conformance.Block
	await   = need.Await
)

// patience is how long a test waits for an event.
const patience = need.Hang

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v; want no error", err)
	}
}

func isUnavailable(err error) bool {
	lost := (*simba.UnavailableError)(nil)
	return errors.As(err, &lost) && lost.Engine == "mysql"
}

func isNameError(err error, argument string) bool {
	name := (*simba.NameError)(nil)
	return errors.As(err, &name) && name.Argument == argument
}

// serverWithTable starts a store and runs the statement that creates its table.
func serverWithTable(t testing.TB, table string) *stores.Server {
	t.Helper()
	store := stores.MariaDB(t)
	must(t, direct(t, store, ""), table)
	return store
}

// serverWithSeedTable starts a store with the table of Simba up to 3.2, to which the column
// fencing_token was added.
func serverWithSeedTable(t testing.TB) *stores.Server {
	t.Helper()
	store := serverWithTable(t, seeds.MySQLTable)
	must(t, direct(t, store, ""), addToken)
	return store
}

// checkAgain makes the engine check the store soon.
func checkAgain(b *Backend) { b.store.hooks.Connected() }

// unavailable returns an error of the store as the engine does.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &simba.UnavailableError{Engine: name, Err: err}
}

func withoutMigration(o *Options) { o.Migrate = false }
