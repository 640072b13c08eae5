package outages

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// eventually repeats a command until the store answers it.
func eventually(t testing.TB, c redis.Conn, command string, args ...any) simbatest.Record {
	t.Helper()
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); {
		r, err := simbatest.ToRecord(c.Do(command, args...))
		if err == nil {
			return r
		}
		if !strings.HasPrefix(err.Error(), "TRYAGAIN ") {
			t.Fatalf("%s %v returns the error %v, want none or TRYAGAIN", command, args, err)
		}
	}
	t.Fatalf("the store is back, but %s %v still returns TRYAGAIN", command, args)
	return nil
}

func TestAServerStopsInOrderWhileItsStoreIsAway(t *testing.T) {
	simbatest.OnEveryStore(t, func(t *testing.T, s *simbatest.Shared) {
		server := startBriefly(t, s, s.Store.Addr, time.Second, longSession)
		eventually(t, simbatest.Conn(t, server), "SIMBA.ACQUIRE", "job", "a", 600_000)
		w := simbatest.WaitRetrying(t, server, "job", "b")
		s.Store.Pause()
		server.Signal(syscall.SIGTERM)
		if code := server.Wait(t); code != 0 {
			t.Errorf("the server exits with code %d, want 0:\n%s", code, server.Output())
		}
		select {
		case <-w.Replied:
		case <-time.After(simbatest.Patience):
			t.Fatal("the waiter gets no reply when the server stops")
		}
		if w.Err == nil {
			t.Errorf("the waiter got the reply %v, want an error", w.Reply)
		}
	})
}

// longSession is a session timeout of the engine zookeeper. It exceeds each outage of a test, so no
// owner loses its lease.
const longSession = time.Hour

// startBriefly starts a server with the store at addr. timeout limits the server's wait for replies
// of the store. session is the session timeout of the engine zookeeper. If the server fails to
// start, because the store is slow, startBriefly starts it again.
func startBriefly(t testing.TB, s *simbatest.Shared, addr string, timeout, session time.Duration) *simbatest.Server {
	t.Helper()
	flags := append(s.Flags(addr), "--backend-timeout", timeout.String())
	if s.Engine == "zookeeper" {
		flags = append(flags, "--zookeeper-session-timeout", session.String())
	}
	server := simbatest.New(t, flags...)
	simbatest.Await(t, "the server starts", server.StartOrEnd)
	return server
}
