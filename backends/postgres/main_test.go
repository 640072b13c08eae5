package postgres

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// TestMain checks for leaked goroutines. It waits longer for their end than goleak does by default,
// for busy machines.
func TestMain(m *testing.M) {
	heartbeat = 200 * time.Millisecond
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
		URL: stores.PostgresURL(addr), Migrate: true, Timeout: serveTimeout, Notices: conformance.NewBroker(),
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
	return errors.As(err, &lost) && lost.Engine == "postgres"
}

// direct runs statements as the superuser, and returns the first value of the last result.
func direct(t testing.TB, store *stores.Server, statements string) string {
	t.Helper()
	value, err := stores.AskPostgres(store.Addr, statements)
	if err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
	return value
}
