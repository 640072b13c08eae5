// Package dropin tests that lock code written for Redis runs unchanged on real servers. The code is
// the scripts of Simba and Spring, redsync, functions for Node.js from a document, and the Node.js
// package redlock.
//
// Contenders of each kind contend for a mutex with clients that use SIMBA.ACQUIRE. Two records must
// show that there were never two owners: the tenures that contenders noted by one clock, and the
// server's history.
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
	redis.SetLogger(silence{}) // otherwise go-redis logs each server that it cannot reach
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

// connect returns a new go-redis client. Each contender gets its own, as if it were a process of
// its own.
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

// is fails the test unless the command gets the reply want; nil stands for a null reply.
func is(t testing.TB, rdb *redis.Client, want any, command ...any) {
	t.Helper()
	got, err := rdb.Do(t.Context(), command...).Result()
	if err == redis.Nil {
		got, err = nil, nil
	}
	if err != nil || got != want {
		t.Errorf("%v: %v, %v; want %v", command, got, err, want)
	}
}

// number returns the integer in the reply to a command.
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
