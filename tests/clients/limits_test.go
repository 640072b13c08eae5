package clients

import (
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// onEveryEngine runs a test with each engine. serve starts a server with that engine.
func onEveryEngine(t *testing.T, test func(t *testing.T, serve func(flags ...string) *simbatest.Server)) {
	t.Run("embedded", func(t *testing.T) {
		test(t, func(flags ...string) *simbatest.Server { return simbatest.Start(t, flags...) })
	})
	simbatest.OnEveryStore(t, func(t *testing.T, s *simbatest.Shared) {
		test(t, func(flags ...string) *simbatest.Server { return s.Start(t, flags...) })
	})
}

// awaitClients waits until exactly want clients are connected, including admin.
func awaitClients(t *testing.T, admin redis.Conn, want int) {
	t.Helper()
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		n, err := simbatest.ClientsInfo(admin, "connected_clients")
		if err != nil {
			t.Fatal(err)
		}
		if n == want {
			return
		}
	}
	t.Fatalf("the server does not reach exactly %d clients", want)
}

// mayWait sends ACQUIRE … WAIT for a held mutex on a new connection. It reports whether the server
// has blocked this client. If the server refuses it, mayWait returns after the client has
// disconnected. mayWait sends INFO on admin, since a new connection would count against the limit.
func mayWait(t *testing.T, s *simbatest.Server, admin redis.Conn, contender string) bool {
	t.Helper()
	before, err := simbatest.ClientsInfo(admin, "blocked_clients")
	if err != nil {
		t.Fatal(err)
	}
	connected, err := simbatest.ClientsInfo(admin, "connected_clients")
	if err != nil {
		t.Fatal(err)
	}
	c := simbatest.Conn(t, s)
	answered := make(chan error, 1)
	go func() {
		_, err := c.Do("SIMBA.ACQUIRE", "job", contender, 600_000, "WAIT", 0)
		answered <- err
	}()
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		select {
		case err := <-answered:
			if err == nil || !strings.HasPrefix(err.Error(), "ERR max number of blocked clients reached") {
				t.Fatalf("%s gets the error %v, want that too many clients are blocked", contender, err)
			}
			c.Close()
			awaitClients(t, admin, connected)
			return false
		default:
		}
		if n, err := simbatest.ClientsInfo(admin, "blocked_clients"); err == nil && n == before+1 {
			return true
		}
	}
	t.Fatalf("the server neither blocks %s nor replies", contender)
	return false
}

func TestWaitersThatFillMaxclientsDoNotBlockTheOwner(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, serve func(flags ...string) *simbatest.Server) {
		s := serve("--maxclients", "12")
		admin, owner := simbatest.Conn(t, s), simbatest.Conn(t, s)
		first := simbatest.DoRecord(t, owner, "SIMBA.ACQUIRE", "job", "owner", 600_000)
		owner.Close() // so the owner must reconnect
		awaitClients(t, admin, 1)
		limit := func(from byte, want int) {
			t.Helper()
			n := 0
			for mayWait(t, s, admin, string(from+byte(n))) {
				n++
			}
			if n != want {
				t.Errorf("the server has blocked %d waiters, want %d", n, want)
			}
		}
		limit('a', 9)
		owner = simbatest.Conn(t, s)
		renewed := func(command string, options ...any) {
			t.Helper()
			got := simbatest.DoRecord(t, owner, command, append([]any{"job", "owner", 600_000}, options...)...)
			if got["status"] != "renewed" || got["token"] != first["token"] {
				t.Errorf("%s of the owner returns %v, want renewed with the same token", command, got)
			}
		}
		renewed("SIMBA.GUARD")
		renewed("SIMBA.ACQUIRE", "WAIT", 0)
		if _, err := owner.Do("CONFIG", "SET", "maxclients", 16); err != nil {
			t.Fatal(err)
		}
		limit('n', 3)
		simbatest.DoOne(t, owner, "SIMBA.RELEASE", "job", "owner")
		for end := time.Now().Add(simbatest.Patience); ; {
			n, err := simbatest.ClientsInfo(admin, "blocked_clients")
			if err != nil {
				t.Fatal(err)
			}
			if n == 11 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("after the release INFO has blocked_clients %d, want 11", n)
			}
		}
		if got := simbatest.DoRecord(t, owner, "SIMBA.OWNER", "job"); got["owner"] != "a" {
			t.Errorf("SIMBA.OWNER returns %v, want a, the next waiter", got)
		}
	})
}

// cut waits until the server has disconnected an idle client.
func cut(t *testing.T, c redis.Conn) {
	t.Helper()
	if _, err := redis.ReceiveWithTimeout(c, simbatest.Patience); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Fatalf("the server does not disconnect the idle client: %v", err)
	}
}

func TestTheIdleTimeoutSparesSessionOwnersWaitersAndSubscribers(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, serve func(flags ...string) *simbatest.Server) {
		s := serve()
		holder := simbatest.Conn(t, s)
		first := simbatest.DoRecord(t, holder, "SIMBA.ACQUIRE", "job", "holder", 600_000, "SESSION")
		waiter := simbatest.Wait(t, s, "job", "waiter")
		listener := simbatest.Subscribe(t, s, "SUBSCRIBE", "simba:{job}")
		// Set the timeout only now. On a busy machine, a client could be idle for a second before
		// its first command.
		if _, err := holder.Do("CONFIG", "SET", "timeout", "1"); err != nil {
			t.Fatal(err)
		}
		for range 3 { // clients that own nothing
			cut(t, simbatest.Conn(t, s))
		}
		if got := simbatest.DoRecord(t, holder, "SIMBA.OWNER", "job"); got["token"] != first["token"] {
			t.Errorf("the owner has changed to %v", got)
		}
		if pong, err := redis.String(holder.Do("PING")); err != nil || pong != "PONG" {
			t.Errorf("PING by the holder returns %s, %v", pong, err)
		}
		simbatest.DoOne(t, holder, "SIMBA.RELEASE", "job", "holder")
		waiter.Granted(t)
		listener.Receive("simba:{job}", "acquired@@waiter")
		cut(t, holder) // now it owns nothing
	})
}
