package mysql

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// TestMain checks for leaked goroutines. It waits longer for their end than goleak does by default,
// for busy machines.
func TestMain(m *testing.M) {
	code := m.Run()
	var err error
	for start := time.Now(); time.Since(start) < patience; {
		if err = goleak.Find(); err == nil {
			break
		}
	}
	if code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// serveTimeout is the Options.Timeout of most tests. It is long, so that no request fails on a busy
// machine. Tests of missed deadlines use testTimeout.
const serveTimeout = time.Minute

// serve opens one more server on the store. set changes its options.
func serve(t testing.TB, addr string, set func(*Options)) *Backend {
	t.Helper()
	o := Options{
		DSN: dsn(addr), Migrate: true, Poll: testPoll, Timeout: serveTimeout, Notices: conformance.NewBroker(),
		HandoffWindow: time.Second, QueueGrace: 5 * time.Second,
	}
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

// openSoon calls Open until it succeeds. On a busy machine the database may at first answer too
// late.
func openSoon(t testing.TB, o Options) *Backend {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		b, err := Open(t.Context(), o)
		if err == nil {
			return b
		}
		if time.Now().After(end) {
			t.Fatalf("Open: %v; want no error", err)
		}
	}
}

func shortTimeout(o *Options) { o.Timeout = testTimeout }

const long = 10 * time.Minute

// The calls that every test uses.
var (
	request = conformance.Request
	take    = conformance.Take
	release = conformance.Release
	ownerOf = conformance.OwnerOf
	block   = conformance.Block
)

// patience is how long a test waits for an event.
const patience = need.Hang

func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	need.Await(t, what, is)
}

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
func checkAgain(b *Backend) { b.store.hooks.Load().Connected() }

// unavailable returns an error of the store as the engine does.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &simba.UnavailableError{Engine: name, Err: err}
}

func withoutMigration(o *Options) { o.Migrate = false }
