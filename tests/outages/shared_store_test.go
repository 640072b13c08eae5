package outages

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestTwoServersShareAStore(t *testing.T) {
	simbatest.OnEveryStore(t, func(t *testing.T, s *simbatest.Shared) {
		one, other := s.Start(t), s.Start(t)
		a, b := simbatest.Conn(t, one), simbatest.Conn(t, other)

		t.Run("a waiter on one is granted what the other releases", func(t *testing.T) {
			first := simbatest.DoRecord(t, a, "SIMBA.ACQUIRE", "wait", "a", 600_000)
			w := simbatest.Wait(t, other, "wait", "b")
			if got := simbatest.DoRecord(t, a, "SIMBA.OWNER", "wait"); got["owner"] != "a" || got["token"] != first["token"] {
				t.Errorf("the owner is %v", got)
			}
			simbatest.DoOne(t, a, "SIMBA.RELEASE", "wait", "a", "TOKEN", first["token"])
			second := w.Granted(t)
			if second <= first["token"].(int64) {
				t.Errorf("token %d follows token %v", second, first["token"])
			}
			// Both servers show the same owner, and refuse the old token.
			for name, c := range map[string]redis.Conn{"one": a, "other": b} {
				if got := simbatest.DoRecord(t, c, "SIMBA.OWNER", "wait"); got["owner"] != "b" || got["token"] != second {
					t.Errorf("on the %s server the owner is %v", name, got)
				}
				simbatest.DoOne(t, c, "SIMBA.CHECK", "wait", second)
				if n, err := redis.Int(c.Do("SIMBA.CHECK", "wait", first["token"])); err != nil || n != 0 {
					t.Errorf("on the %s server SIMBA.CHECK of the old token returns %d, %v, want 0", name, n, err)
				}
			}
		})
		t.Run("what replies call no token is the token of no tenure", func(t *testing.T) {
			simbatest.DoRecord(t, a, "SIMBA.ACQUIRE", "zero", "a", 600_000)
			for _, mutex := range []string{"zero", "nobodys"} {
				if n, err := redis.Int(a.Do("SIMBA.CHECK", mutex, 0)); err != nil || n != 0 {
					t.Errorf("SIMBA.CHECK %s 0: %d, %v, want 0", mutex, n, err)
				}
			}
		})
		t.Run("an owner renews and releases on either", func(t *testing.T) {
			first := simbatest.DoRecord(t, a, "SIMBA.ACQUIRE", "either", "a", 600_000)
			for _, command := range []string{"SIMBA.GUARD", "SIMBA.ACQUIRE"} {
				if got := simbatest.DoRecord(t, b, command, "either", "a", 600_000); got["status"] != "renewed" || got["token"] != first["token"] {
					t.Errorf("%s on the other server replies %v, want renewed", command, got)
				}
			}
			simbatest.DoOne(t, b, "SIMBA.RELEASE", "either", "a")
			if got, err := a.Do("SIMBA.OWNER", "either"); err != nil || got != nil {
				t.Errorf("after the release its owner is %v, %v", got, err)
			}
		})
		t.Run("the server of the subscription notifies a polling waiter", func(t *testing.T) {
			simbatest.DoRecord(t, a, "SIMBA.ACQUIRE", "poll", "a", 600_000)
			own := simbatest.Subscribe(t, other, "SUBSCRIBE", "simba:{poll}:b")
			if got := simbatest.DoRecord(t, b, "SIMBA.ACQUIRE", "poll", "b", 600_000); got["status"] != "queued" || got["owner"] != "a" {
				t.Fatalf("ACQUIRE of b replies %v, want queued behind a", got)
			}
			simbatest.DoOne(t, a, "SIMBA.RELEASE", "poll", "a")
			own.Receive("simba:{poll}:b", "released@@a")
			if got := simbatest.DoRecord(t, b, "SIMBA.ACQUIRE", "poll", "b", 600_000); got["status"] != "acquired" {
				t.Errorf("when b is next, ACQUIRE replies %v", got)
			}
		})
		t.Run("tenures of one are announced by the other", func(t *testing.T) {
			leaders := simbatest.Subscribe(t, other, "SUBSCRIBE", "simba:{told}", "simba-events:{told}")
			first := simbatest.DoRecord(t, a, "SIMBA.ACQUIRE", "told", "a", 600_000)
			leaders.Receive("simba:{told}", "acquired@@a")
			var event struct {
				Event, Mutex, Owner string
				Token, Seq, At      int64
			}
			text := leaders.Receive("simba-events:{told}", "")
			if err := json.Unmarshal([]byte(text), &event); err != nil {
				t.Fatalf("the event %s is not valid JSON: %v", text, err)
			}
			if event.Event != "acquired" || event.Mutex != "told" || event.Owner != "a" || event.Token != first["token"] || event.Seq == 0 || event.At == 0 {
				t.Errorf("the event is %s", text)
			}
			simbatest.DoOne(t, a, "SIMBA.RELEASE", "told", "a")
			simbatest.DoRecord(t, a, "SIMBA.ACQUIRE", "told", "b", 600_000)
			leaders.Receive("simba:{told}", "acquired@@b")
		})
		t.Run("patterns hear all mutexes of both", func(t *testing.T) {
			all := simbatest.Subscribe(t, one, "PSUBSCRIBE", "simba*")
			simbatest.DoRecord(t, a, "SIMBA.ACQUIRE", "here", "x", 600_000)
			simbatest.DoRecord(t, b, "SIMBA.ACQUIRE", "there", "y", 600_000)
			heard := map[string]bool{}
			for deadline := time.After(simbatest.Patience); len(heard) < 4; {
				select {
				case m := <-all.Messages:
					switch text := string(m.Data); {
					case m.Channel == "simba:{here}" && text == "acquired@@x",
						m.Channel == "simba:{there}" && text == "acquired@@y",
						m.Channel == "simba-events:{here}" && strings.Contains(text, `"event":"acquired"`),
						m.Channel == "simba-events:{there}" && strings.Contains(text, `"event":"acquired"`):
						if heard[m.Channel] {
							t.Errorf("%s delivers %s twice", m.Channel, text)
						}
						heard[m.Channel] = true
					}
				case <-deadline:
					t.Fatalf("notices came only on %v", heard)
				}
			}
		})
		t.Run("a session that ends on one makes way for a waiter on the other", func(t *testing.T) {
			holder := simbatest.Conn(t, one)
			simbatest.DoRecord(t, holder, "SIMBA.ACQUIRE", "session", "a", 600_000, "SESSION")
			w := simbatest.Wait(t, other, "session", "b")
			holder.Close()
			w.Granted(t)
		})
		t.Run("what one holds the other scans and counts", func(t *testing.T) {
			simbatest.DoRecord(t, a, "SIMBA.ACQUIRE", "scanned", "a", 600_000)
			var names []string
			for cursor := "0"; ; {
				page, err := redis.Values(b.Do("SIMBA.SCAN", cursor, "STATE", "held"))
				if err != nil {
					t.Fatal(err)
				}
				more, err := redis.Strings(page[1], nil)
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, more...)
				if cursor, err = redis.String(page[0], nil); err != nil || cursor == "0" {
					break
				}
			}
			if !strings.Contains(fmt.Sprint(names), "scanned") {
				t.Errorf("SCAN shows %q", names)
			}
			if n, err := redis.Int(b.Do("DBSIZE")); err != nil || n != len(names) {
				t.Errorf("DBSIZE is %d, %v; SCAN shows %q", n, err, names)
			}
		})
		t.Run("INFO claims nothing that is the store's affair", func(t *testing.T) {
			info, err := redis.String(a.Do("INFO"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(info, "engine:"+s.Engine+"\r\n") || strings.Contains(info, "durability") || strings.Contains(info, ":-") {
				t.Errorf("INFO says\n%s", info)
			}
			if strings.Contains(one.Output(), "durability") {
				t.Errorf("the log says\n%s", one.Output())
			}
		})
	})
}

// tryAgain fails unless the error is the reply for an unreachable store.
func tryAgain(t testing.TB, engine string, err error) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN engine "+engine+" unavailable: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("the client gets the reply %v", err)
	}
}

// away sends requests until the store does not answer. A process may still run for a moment after
// SIGSTOP was sent to it.
func away(t testing.TB, c redis.Conn, engine string) {
	t.Helper()
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); {
		if _, err := c.Do("SIMBA.OWNER", "away"); err != nil {
			tryAgain(t, engine, err)
			return
		}
	}
	t.Fatal("the store still answers")
}

// eventually repeats a command until the store answers again.
func eventually(t testing.TB, c redis.Conn, command string, args ...any) simbatest.Record {
	t.Helper()
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); {
		r, err := simbatest.ToRecord(c.Do(command, args...))
		if err == nil {
			return r
		}
		if !strings.HasPrefix(err.Error(), "TRYAGAIN ") {
			t.Fatalf("%s %v returns the error %v, want TRYAGAIN", command, args, err)
		}
	}
	t.Fatalf("the store is back, but %s %v still returns TRYAGAIN", command, args)
	return nil
}

func TestALostStoreIsReportedAndReconnectedWithoutARestart(t *testing.T) {
	simbatest.OnEveryStore(t, func(t *testing.T, s *simbatest.Shared) {
		server := startBriefly(t, s, s.Store.Addr, time.Second, longSession)
		c := simbatest.Conn(t, server)
		// A frozen store keeps its connections open and answers nothing. A stopped one refuses
		// them.
		for _, fault := range []struct {
			name       string
			away, back func()
		}{
			{"frozen", s.Store.Pause, s.Store.Resume},
			{"stopped", s.Store.Stop, s.Store.Start},
		} {
			t.Run(fault.name, func(t *testing.T) {
				eventually(t, c, "SIMBA.ACQUIRE", "before", "a", 600_000)
				fault.away()
				away(t, c, s.Engine)
				commands := [][]any{
					{"SIMBA.ACQUIRE", "new", "a", 600_000}, {"SIMBA.GUARD", "before", "a", 600_000}, {"SIMBA.OWNER", "before"},
					{"SIMBA.CHECK", "before", 1}, {"SIMBA.RELEASE", "other", "a"}, {"SIMBA.SCAN", 0}, {"DBSIZE"},
				}
				if s.Engine != "mysql" { // with mysql the server itself has the queue
					commands = append(commands, []any{"SIMBA.QUEUE", "before"})
				}
				for _, command := range commands {
					began := time.Now()
					reply, err := c.Do(command[0].(string), command[1:]...)
					if tryAgain(t, s.Engine, err); t.Failed() {
						t.Fatalf("the server replies %v to %v", reply, command)
					}
					if took := time.Since(began); took > 10*time.Second { // the timeout is 1 s
						t.Errorf("the reply to %s came only after %v", command[0], took)
					}
				}
				if pong, err := redis.String(c.Do("PING")); err != nil || pong != "PONG" {
					t.Errorf("PING returns %s, %v", pong, err)
				}

				fault.back()
				healed := time.Now()
				eventually(t, c, "SIMBA.ACQUIRE", "new", "a", 600_000)
				t.Logf("served again after %v", time.Since(healed))
			})
		}
	})
}

func TestAWaiterKeepsWaitingDuringAnOutageOfTheStore(t *testing.T) {
	simbatest.OnEveryStore(t, func(t *testing.T, s *simbatest.Shared) {
		server := startBriefly(t, s, s.Store.Addr, time.Second, longSession)
		c := simbatest.Conn(t, server)
		eventually(t, c, "SIMBA.ACQUIRE", "job", "a", 600_000)
		w := simbatest.WaitRetrying(t, server, "job", "b")
		s.Store.Pause()
		away(t, c, s.Engine)
		s.Store.Resume()
		// On a busy machine the store may be slow, and may have executed the RELEASE that was
		// refused.
		for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); {
			if _, err := c.Do("SIMBA.RELEASE", "job", "a"); err == nil {
				break
			} else if !strings.HasPrefix(err.Error(), "TRYAGAIN ") {
				t.Fatal(err)
			}
		}
		w.Granted(t)
	})
}

func TestAServerStopsInOrderWhileItsStoreIsAway(t *testing.T) {
	simbatest.OnEveryStore(t, func(t *testing.T, s *simbatest.Shared) {
		server := startBriefly(t, s, s.Store.Addr, time.Second, longSession)
		eventually(t, simbatest.Conn(t, server), "SIMBA.ACQUIRE", "job", "a", 600_000)
		w := simbatest.WaitRetrying(t, server, "job", "b")
		s.Store.Pause()
		server.Signal(syscall.SIGTERM)
		if code := server.Wait(t); code != 0 {
			t.Errorf("exit code %d:\n%s", code, server.Output())
		}
		select {
		case <-w.Replied:
		case <-time.After(simbatest.Patience):
			t.Fatal("the waiter gets no reply")
		}
		if w.Err == nil {
			t.Errorf("the waiter got the reply %v, want an error", w.Reply)
		}
	})
}

// longSession is a session timeout of the engine zookeeper. It is longer than each outage of a
// test, so that no owner loses its lease.
const longSession = simbatest.Patience

// startBriefly starts a server with the store at addr. The server waits at most timeout for replies
// of the store. session is the session timeout of the engine zookeeper. If the store is too slow
// while the server starts, startBriefly starts the server again.
func startBriefly(t testing.TB, s *simbatest.Shared, addr string, timeout, session time.Duration) *simbatest.Server {
	t.Helper()
	flags := append(s.Flags(addr), "--backend-timeout", timeout.String())
	if s.Engine == "zookeeper" {
		flags = append(flags, "--zookeeper-session-timeout", session.String())
	}
	server := simbatest.New(t, flags...)
	for end := time.Now().Add(simbatest.Patience); !server.StartOrEnd(); {
		if time.Now().After(end) {
			t.Fatalf("the server does not start:\n%s", server.Log())
		}
	}
	return server
}
