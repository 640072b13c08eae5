package simbatest

import (
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Waiter is a client that has sent SIMBA.ACQUIRE … WAIT on its own connection.
type Waiter struct {
	Conn    redis.Conn
	Replied chan struct{} // closed when Reply and Err are set
	Reply   Record
	Err     error
}

func newWaiter(t testing.TB, s *Server, mutex, contender string, options []any) *Waiter {
	t.Helper()
	w := &Waiter{Conn: Conn(t, s), Replied: make(chan struct{})}
	go func() {
		defer close(w.Replied)
		args := append([]any{mutex, contender, 600_000, "WAIT", 0}, options...)
		w.Reply, w.Err = ToRecord(w.Conn.Do("SIMBA.ACQUIRE", args...))
	}()
	return w
}

// Wait sends ACQUIRE … WAIT 0, and returns when the server has blocked the client.
func Wait(t testing.TB, s *Server, mutex, contender string, options ...any) *Waiter {
	t.Helper()
	before, err := BlockedClients(s.Addr)
	Must(t, err)
	w := newWaiter(t, s, mutex, contender, options)
	AwaitBlocked(t, s.Addr, before+1)
	return w
}

// WaitRetrying works like Wait, but sends the request again if the server refuses it with TRYAGAIN.
// A server does so while its store is slow.
func WaitRetrying(t testing.TB, s *Server, mutex, contender string) *Waiter {
	t.Helper()
	before, err := BlockedClients(s.Addr)
	Must(t, err)
	for end := time.Now().Add(Patience); time.Now().Before(end); {
		w := newWaiter(t, s, mutex, contender, nil)
		for refused := false; !refused && time.Now().Before(end); {
			if n, err := BlockedClients(s.Addr); err == nil && n == before+1 {
				return w
			}
			select {
			case <-w.Replied:
				if refused = w.Err != nil && strings.HasPrefix(w.Err.Error(), "TRYAGAIN "); !refused {
					t.Fatalf("the server does not block %s, but replies %v, %v", contender, w.Reply, w.Err)
				}
			default:
			}
		}
	}
	t.Fatalf("the server does not block the request of %s", contender)
	return nil
}

// Granted waits for the grant and returns its fencing token.
func (w *Waiter) Granted(t testing.TB) (token int64) {
	t.Helper()
	select {
	case <-w.Replied:
	case <-time.After(Patience):
		t.Fatal("the waiter has no reply")
	}
	if w.Err != nil || w.Reply["status"] != "acquired" {
		t.Fatalf("the waiter gets the reply %v, %v, want acquired", w.Reply, w.Err)
	}
	return w.Reply["token"].(int64)
}
