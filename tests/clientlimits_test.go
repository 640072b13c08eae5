package tests

import (
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// onEveryEngine runs a test on each engine. serve runs a server on it.
func onEveryEngine(t *testing.T, test func(t *testing.T, serve func(flags ...string) *server)) {
	t.Run("embedded", func(t *testing.T) {
		test(t, func(flags ...string) *server { return start(t, flags...) })
	})
	onEveryStore(t, func(t *testing.T, s *shared) {
		test(t, func(flags ...string) *server { return s.serve(t, flags...) })
	})
}

// mayWait sends ACQUIRE … WAIT for a mutex that is not free, and reports whether the server has
// blocked the client or has refused it. One that is refused leaves.
func mayWait(t *testing.T, s *server, contender string) bool {
	t.Helper()
	c := conn(t, s)
	before, err := blockedClients(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := c.Do("SIMBA.ACQUIRE", "job", contender, 600_000, "WAIT", 0)
		answered <- err
	}()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		select {
		case err := <-answered:
			if err == nil || !strings.HasPrefix(err.Error(), "ERR max number of blocked clients reached") {
				t.Fatalf("%s is answered %v", contender, err)
			}
			c.Close()
			return false
		default:
		}
		if n, err := blockedClients(s.addr); err == nil && n == before+1 {
			return true
		}
	}
	t.Fatalf("%s is neither blocked nor answered", contender)
	return false
}

func TestWaitersThatFillMaxclientsDoNotLockTheOwnerOut(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, serve func(flags ...string) *server) {
		s := serve("--maxclients", "12")
		owner := conn(t, s)
		first := ask(t, owner, "SIMBA.ACQUIRE", "job", "owner", 600_000)
		owner.Close() // its connection breaks
		limit := func(from byte, want int) {
			t.Helper()
			n := 0
			for mayWait(t, s, string(from+byte(n))) {
				n++
			}
			if n != want {
				t.Errorf("%d waiters are blocked, want %d", n, want)
			}
		}
		limit('a', 9)
		owner = conn(t, s)
		renewed := func(command string, options ...any) {
			t.Helper()
			got := ask(t, owner, command, append([]any{"job", "owner", 600_000}, options...)...)
			if got["status"] != "renewed" || got["token"] != first["token"] {
				t.Errorf("%s of the owner: %v", command, got)
			}
		}
		renewed("SIMBA.GUARD")
		renewed("SIMBA.ACQUIRE", "WAIT", 0)
		if _, err := owner.Do("CONFIG", "SET", "maxclients", 16); err != nil {
			t.Fatal(err)
		}
		limit('n', 3)
		yes(t, owner, "SIMBA.RELEASE", "job", "owner")
		blocked(t, s.addr, 11)
		if got := ask(t, owner, "SIMBA.OWNER", "job"); got["owner"] != "a" {
			t.Errorf("the next owner is %v", got)
		}
	})
}

// cut waits until the server has cut an idle client.
func cut(t *testing.T, c redis.Conn) {
	t.Helper()
	if _, err := redis.ReceiveWithTimeout(c, patience); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Fatalf("the idle client is not cut: %v", err)
	}
}

func TestTheIdleTimeoutSparesWhoOwnsASessionLeaseIsBlockedOrListens(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, serve func(flags ...string) *server) {
		s := serve("--timeout", "1")
		holder := conn(t, s)
		first := ask(t, holder, "SIMBA.ACQUIRE", "job", "holder", 600_000, "SESSION")
		waiter := wait(t, s, "job", "waiter")
		listener := listen(t, s, "SUBSCRIBE", "simba:{job}")
		for range 3 { // who comes later, and owns nothing, is cut
			cut(t, conn(t, s))
		}
		other := conn(t, s)
		if got := ask(t, other, "SIMBA.OWNER", "job"); got["token"] != first["token"] {
			t.Errorf("the owner is %v now", got)
		}
		if pong, err := redis.String(holder.Do("PING")); err != nil || pong != "PONG" {
			t.Errorf("the holder: %s, %v", pong, err)
		}
		yes(t, conn(t, s), "SIMBA.RELEASE", "job", "holder")
		waiter.granted(t)
		listener.hears("simba:{job}", "acquired@@waiter")
		cut(t, holder) // it owns nothing any more
	})
}
