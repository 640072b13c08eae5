package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/leaks"
	"github.com/simba-resp/simba-resp/tests/need"
)

func TestMain(m *testing.M) {
	heartbeat = 200 * time.Millisecond
	leaks.Exit(m.Run())
}

// serveTimeout is the Options.Timeout of most tests. It is long, so that no request fails on a busy
// machine. Tests of missed deadlines use testTimeout.
const serveTimeout = time.Minute

// serve opens one more server on the store. set changes its options.
func serve(t testing.TB, addr string, set func(*Options)) *Backend {
	t.Helper()
	o := Options{URL: stores.PostgresURL(addr), Migrate: true, Options: proxy.Options{Timeout: serveTimeout, Notices: conformance.NewBroker(), HandoffWindow: time.Second, QueueGrace: 5 * time.Second}}
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
