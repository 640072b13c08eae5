package simbatest

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// Conn returns a connection to the server, without timeouts.
func Conn(t testing.TB, s *Server) redis.Conn {
	t.Helper()
	c, err := redis.Dial("tcp", s.Addr)
	Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// Must fails the test if err is not nil.
func Must(t stores.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Await waits until holds returns true. It fails the test if that takes longer than Patience.
func Await(t stores.TB, what string, holds func() bool) {
	t.Helper()
	need.Await(t, what, holds)
}

// Do sends a command that must succeed, and returns the reply.
func Do(t testing.TB, c redis.Conn, command string, args ...any) any {
	t.Helper()
	reply, err := c.Do(command, args...)
	if err != nil {
		t.Fatalf("%s %v: %v", command, args, err)
	}
	return reply
}

// DoRecord sends a command whose reply is a record.
func DoRecord(t testing.TB, c redis.Conn, command string, args ...any) Record {
	t.Helper()
	r, err := ToRecord(c.Do(command, args...))
	if err != nil {
		t.Fatalf("%s %v: %v", command, args, err)
	}
	return r
}

// DoOne sends a command whose reply must be 1.
func DoOne(t testing.TB, c redis.Conn, command string, args ...any) {
	t.Helper()
	if n, err := redis.Int(c.Do(command, args...)); err != nil || n != 1 {
		t.Fatalf("%s %v returns %d, %v, want 1", command, args, n, err)
	}
}

// AwaitBlocked waits until the server at addr has exactly want blocked clients.
func AwaitBlocked(t testing.TB, addr string, want int) {
	t.Helper()
	Await(t, fmt.Sprintf("the server reports %d blocked clients", want), func() bool {
		n, err := BlockedClients(addr)
		Must(t, err)
		return n == want
	})
}

// BlockedClients returns how many blocked clients the server at addr has.
func BlockedClients(addr string) (int, error) {
	c, err := redis.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return ClientsInfo(c, "blocked_clients")
}

// ClientsInfo returns the value of a field in the section "clients" of INFO.
func ClientsInfo(c redis.Conn, field string) (int, error) {
	info, err := redis.String(c.Do("INFO", "clients"))
	if err != nil {
		return 0, err
	}
	match := regexp.MustCompile(`(?m)^` + field + `:(\d+)\r$`).FindStringSubmatch(info)
	if match == nil {
		return 0, fmt.Errorf("unexpected reply to INFO clients: %q", info)
	}
	return strconv.Atoi(match[1])
}

// GoRedis returns a go-redis client with default options.
func GoRedis(t testing.TB, s *Server) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr})
	t.Cleanup(func() { c.Close() })
	return c
}

// Acquire sends SIMBA.ACQUIRE and returns the status and the token of the reply.
func Acquire(t testing.TB, c *goredis.Client, mutex, contender string, ttl int, options ...any) (status string, token int64) {
	t.Helper()
	r, err := ToRecord(c.Do(t.Context(), append([]any{"SIMBA.ACQUIRE", mutex, contender, ttl}, options...)...).Result())
	Must(t, err)
	return r["status"].(string), r["token"].(int64)
}
