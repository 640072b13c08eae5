// Package clients tests the server with redis-cli, redis-benchmark, go-redis and redigo, over TCP
// and TLS, as different users.
package clients

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) {
	os.Setenv("FAKETTY", "1") // makes redis-cli write as to a terminal
	os.Exit(simbatest.Main(m))
}

// There are more transactions than scripts that may run at a time, so some must wait.
func TestTransactionsOfLongScriptsAreAllExecuted(t *testing.T) {
	s := simbatest.Start(t, "--durability", "memory")
	const clients, long = 16, "for i = 1, 200000 do end return 1"
	// On a slow machine a script may take longer than the default.
	simbatest.Do(t, simbatest.Conn(t, s), "CONFIG", "SET", "busy-reply-threshold", simbatest.Patience.Milliseconds())
	done := make(chan error)
	for range clients {
		c := goredis.NewClient(&goredis.Options{Addr: s.Addr, MaxRetries: -1, ReadTimeout: simbatest.Patience})
		t.Cleanup(func() { c.Close() })
		go func() {
			_, err := c.TxPipelined(t.Context(), func(p goredis.Pipeliner) error {
				for range 3 {
					p.Eval(t.Context(), long, nil)
				}
				return nil
			})
			done <- err
		}()
	}
	for range clients {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestRedisCLIOverAUnixSocket(t *testing.T) {
	simbatest.NeedRedisTools(t)
	path := filepath.Join(t.TempDir(), "simba.sock")
	s := simbatest.Start(t, "--unixsocket", path)
	over := func(args ...string) []string { return append([]string{"-s", path}, args...) }
	if got := simbatest.Output(t, "redis-cli", over("PING")...); strings.Trim(got, "\"\n") != "PONG" {
		t.Errorf("PING over the socket prints %q", got)
	}
	monitor := simbatest.Run(t, "redis-cli", over("MONITOR")...)
	monitor.Wants(t, "^OK$")

	// Clients over TCP see the connection of a session over the socket. The session ends with that
	// connection.
	owner, err := redis.Dial("unix", path)
	simbatest.Must(t, err)
	defer owner.Close()
	if r := simbatest.DoRecord(t, owner, "SIMBA.ACQUIRE", "job", "a", 600_000, "SESSION"); r["status"] != "acquired" {
		t.Fatalf("SIMBA.ACQUIRE returns %v, want acquired", r)
	}
	if shown := cli(t, s, "SIMBA.OWNER", "job"); !strings.Contains(shown, `"`+path+`:0"`) {
		t.Errorf("the owner's connection is missing:\n%s", shown)
	}
	waiter := simbatest.Run(t, "redis-cli", over("SIMBA.ACQUIRE", "job", "b", "600000", "WAIT", "0")...)
	simbatest.AwaitBlocked(t, s.Addr, 1)
	owner.Close()
	waiter.Wants(t, `"acquired"`)
	monitor.Wants(t, `\[0 unix:`+path+`\] "SIMBA.ACQUIRE" "job" "b"`)

	simbatest.Refused(t, 1, "another process listens on "+path, "--addr", "127.0.0.1:0", "--data-dir", t.TempDir()+"/data", "--log-level", "error", "--unixsocket", path)
	s.Restart() // the server must replace the file of the socket
	if got := simbatest.Output(t, "redis-cli", over("PING")...); strings.Trim(got, "\"\n") != "PONG" {
		t.Errorf("PING after a crash prints %q", got)
	}
}
