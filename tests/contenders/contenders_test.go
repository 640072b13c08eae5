// Package contenders tests the promises of the Go client with real servers. The tests kill and
// freeze contenders and servers, and cut connections.
//
// Two records must show that there were never two owners. Each contender records when it owned the
// mutex, by a clock that all contenders share. The server records its history.
package contenders

import (
	"context"
	"log/slog"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/leaks"
	"github.com/simba-resp/simba-resp/tests/simbatest"
	"github.com/simba-resp/simba-resp/tests/tenures"
)

const tryDial = "github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // go-redis would log each failed connection
	// A go-redis pool that is closed while it dials may dial for another second.
	leaks.Exit(simbatest.Main(m), goleak.IgnoreAnyFunction(tryDial))
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func connect(t testing.TB, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// newClient returns a Client with its own connections.
func newClient(t testing.TB, addr string) *client.Client {
	t.Helper()
	c, err := client.New(connect(t, addr), client.Options{Logger: slog.New(slog.DiscardHandler)})
	simbatest.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// changes returns the events of a mutex after the event seq.
func changes(t testing.TB, rdb *redis.Client, mutex string, seq int64) []tenures.Event {
	t.Helper()
	events, err := tenures.Events(rdb.Do(t.Context(), "simba.history", mutex, "count", 10_000, "since", seq).Result())
	simbatest.Must(t, err)
	return events
}
