// Package dropin tests that lock code written for Redis runs unchanged on real servers. Such code
// is the scripts of Simba and Spring, redsync, redislock, the Node.js package redlock, and lock
// functions from a web page. The package also tests contenders of Simba's JDBC backend, which use
// MySQL.
//
// Contenders of each kind contend for a mutex with clients that use SIMBA.ACQUIRE. Contenders note
// their tenures by one clock. Neither these notes nor the server's history may show two owners.
package dropin

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // go-redis would log each server that it cannot reach
	var err error
	if scratch, err = os.MkdirTemp("", "simba-resp-dropin-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := simbatest.Main(m)
	os.RemoveAll(scratch)
	os.Exit(code)
}

// scratch is a temporary folder for files that several tests share.
var scratch string

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// connect returns a new client, so that each contender has connections of its own.
func connect(t testing.TB, s *simbatest.Server) *redis.Client {
	t.Helper()
	return connectTo(t, s.Addr)
}

func connectTo(t testing.TB, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: simbatest.Patience, MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// is fails the test unless the reply to the command is want; nil stands for a null reply.
func is(t testing.TB, rdb *redis.Client, want any, command ...any) {
	t.Helper()
	got, err := rdb.Do(t.Context(), command...).Result()
	if err == redis.Nil {
		got, err = nil, nil
	}
	if err != nil || got != want {
		t.Errorf("%v returns %v, %v; want %v", command, got, err, want)
	}
}

func number(t testing.TB, rdb *redis.Client, command ...any) int64 {
	t.Helper()
	n, err := rdb.Do(t.Context(), command...).Int64()
	if err != nil {
		t.Fatalf("%v: %v", command, err)
	}
	return n
}

// record returns the record in the reply to a command; nil = the reply is null.
func record(ctx context.Context, rdb *redis.Client, command ...any) (simbatest.Record, error) {
	return simbatest.ToRecord(rdb.Do(ctx, command...).Result())
}
