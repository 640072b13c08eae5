// Package contenders holds the Go client to its promises with real servers, on every engine, and with
// contenders that are killed and stopped.
//
// Two witnesses say that there were never two owners: the contenders, who each look whether they own the
// mutex and note when, by one clock; and the server's history.
package contenders

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/leaks"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

const tryDial = "github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // go-redis tells of each server that is away
	// A go-redis pool that is closed while it looks for the server looks up to a second longer.
	leaks.Exit(simbatest.Main(m), goleak.IgnoreAnyFunction(tryDial))
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// connect returns a go-redis client of its own, as each process has one.
func connect(t testing.TB, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// newClient returns a Client with connections of its own.
func newClient(t testing.TB, addr string) *client.Client {
	t.Helper()
	c, err := client.New(connect(t, addr), client.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// within fails the test unless what happens in time.
func within[T any](t testing.TB, what string, happens <-chan T) T {
	t.Helper()
	select {
	case v := <-happens:
		return v
	case <-time.After(simbatest.Patience):
		t.Fatalf("in vain for %v: %s", simbatest.Patience, what)
		panic("unreachable")
	}
}
