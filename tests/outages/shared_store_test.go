package outages

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestTwoServersShareAStore(t *testing.T) {
	simbatest.OnEveryStore(t, func(t *testing.T, s *simbatest.Shared) {
		one, other := s.Start(t), s.Start(t)
		a, b := simbatest.Conn(t, one), simbatest.Conn(t, other)

		t.Run("a release at one server grants the mutex to a waiter at the other", func(t *testing.T) {
			first := simbatest.DoRecord(t, a, "SIMBA.ACQUIRE", "wait", "a", 600_000)
			w := simbatest.Wait(t, other, "wait", "b")
			if got := simbatest.DoRecord(t, a, "SIMBA.OWNER", "wait"); got["owner"] != "a" || got["token"] != first["token"] {
				t.Errorf("SIMBA.OWNER returns %v, want a with token %v", got, first["token"])
			}
			simbatest.DoOne(t, a, "SIMBA.RELEASE", "wait", "a", "TOKEN", first["token"])
			second := w.Granted(t)
			if second <= first["token"].(int64) {
				t.Errorf("token %d follows token %v, want a larger token", second, first["token"])
			}
			for name, c := range map[string]redis.Conn{"one": a, "other": b} {
				if got := simbatest.DoRecord(t, c, "SIMBA.OWNER", "wait"); got["owner"] != "b" || got["token"] != second {
					t.Errorf("SIMBA.OWNER of the server %s returns %v, want b with token %d", name, got, second)
				}
				simbatest.DoOne(t, c, "SIMBA.CHECK", "wait", second)
				if n, err := redis.Int(c.Do("SIMBA.CHECK", "wait", first["token"])); err != nil || n != 0 {
					t.Errorf("SIMBA.CHECK of the old token at the server %s returns %d, %v, want 0", name, n, err)
				}
			}
		})
		t.Run("CHECK of the token 0 replies 0", func(t *testing.T) {
			simbatest.DoRecord(t, a, "SIMBA.ACQUIRE", "zero", "a", 600_000)
			for _, mutex := range []string{"zero", "nobodys"} {
				if n, err := redis.Int(a.Do("SIMBA.CHECK", mutex, 0)); err != nil || n != 0 {
					t.Errorf("SIMBA.CHECK %s 0 returns %d, %v, want 0", mutex, n, err)
				}
			}
		})
		t.Run("an owner renews and releases at either server", func(t *testing.T) {
			first := simbatest.DoRecord(t, a, "SIMBA.ACQUIRE", "either", "a", 600_000)
			for _, command := range []string{"SIMBA.GUARD", "SIMBA.ACQUIRE"} {
				if got := simbatest.DoRecord(t, b, command, "either", "a", 600_000); got["status"] != "renewed" || got["token"] != first["token"] {
					t.Errorf("%s at the other server returns %v, want renewed", command, got)
				}
			}
			simbatest.DoOne(t, b, "SIMBA.RELEASE", "either", "a")
			if got, err := a.Do("SIMBA.OWNER", "either"); err != nil || got != nil {
				t.Errorf("after the release, SIMBA.OWNER returns %v, %v, want null", got, err)
			}
		})
		t.Run("the server of the subscription notifies a polling waiter", func(t *testing.T) {
			simbatest.DoRecord(t, a, "SIMBA.ACQUIRE", "poll", "a", 600_000)
			own := simbatest.Subscribe(t, other, "SUBSCRIBE", "simba:{poll}:b")
			if got := simbatest.DoRecord(t, b, "SIMBA.ACQUIRE", "poll", "b", 600_000); got["status"] != "queued" || got["owner"] != "a" {
				t.Fatalf("SIMBA.ACQUIRE of b returns %v, want queued behind a", got)
			}
			simbatest.DoOne(t, a, "SIMBA.RELEASE", "poll", "a")
			own.Receive("simba:{poll}:b", "released@@a")
			if got := simbatest.DoRecord(t, b, "SIMBA.ACQUIRE", "poll", "b", 600_000); got["status"] != "acquired" {
				t.Errorf("SIMBA.ACQUIRE of the next waiter returns %v, want acquired", got)
			}
		})
		t.Run("each server announces the tenures of the other", func(t *testing.T) {
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
				t.Errorf("the event is %s, want acquired by a with token %v", text, first["token"])
			}
			simbatest.DoOne(t, a, "SIMBA.RELEASE", "told", "a")
			simbatest.DoRecord(t, a, "SIMBA.ACQUIRE", "told", "b", 600_000)
			leaders.Receive("simba:{told}", "acquired@@b")
		})
		t.Run("a pattern receives the notices of both servers", func(t *testing.T) {
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
					t.Fatalf("notices arrived only on the channels %v, want four channels", heard)
				}
			}
		})
		t.Run("the end of a session at one server grants the mutex to a waiter at the other", func(t *testing.T) {
			holder := simbatest.Conn(t, one)
			simbatest.DoRecord(t, holder, "SIMBA.ACQUIRE", "session", "a", 600_000, "SESSION")
			w := simbatest.Wait(t, other, "session", "b")
			holder.Close()
			w.Granted(t)
		})
		t.Run("SCAN and DBSIZE of one server show mutexes that were acquired at the other", func(t *testing.T) {
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
				t.Errorf("SIMBA.SCAN returns %q, want scanned among them", names)
			}
			if n, err := redis.Int(b.Do("DBSIZE")); err != nil || n != len(names) {
				t.Errorf("DBSIZE returns %d, %v; SIMBA.SCAN returns %q", n, err, names)
			}
		})
		t.Run("INFO shows no facts about the store", func(t *testing.T) {
			info, err := redis.String(a.Do("INFO"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(info, "engine:"+s.Engine+"\r\n") || strings.Contains(info, "durability") || strings.Contains(info, ":-") {
				t.Errorf("INFO lacks the engine, or shows facts about the store:\n%s", info)
			}
			if strings.Contains(one.Output(), "durability") {
				t.Errorf("the log names a durability:\n%s", one.Output())
			}
		})
	})
}

// tryAgain fails the test unless err is the error reply for an unreachable store.
func tryAgain(t testing.TB, engine string, err error) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN engine "+engine+" unavailable: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("the error reply is %v, want TRYAGAIN engine %s unavailable", err, engine)
	}
}

// away sends requests until the store does not answer. After SIGSTOP a process may run for another
// moment.
func away(t testing.TB, c redis.Conn, engine string) {
	t.Helper()
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); {
		if _, err := c.Do("SIMBA.OWNER", "away"); err != nil {
			tryAgain(t, engine, err)
			return
		}
	}
	t.Fatal("SIMBA.OWNER returns no error: the store still answers")
}

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

func TestALostStoreIsReportedAndReconnectedWithoutARestart(t *testing.T) {
	simbatest.OnEveryStore(t, func(t *testing.T, s *simbatest.Shared) {
		server := startBriefly(t, s, s.Store.Addr, time.Second, longSession)
		c := simbatest.Conn(t, server)
		// A frozen store keeps its connections open and answers nothing. A stopped store refuses
		// connections.
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
				if s.Engine != "mysql" { // on mysql the server itself has the queue
					commands = append(commands, []any{"SIMBA.QUEUE", "before"})
				}
				for _, command := range commands {
					began := time.Now()
					reply, err := c.Do(command[0].(string), command[1:]...)
					if tryAgain(t, s.Engine, err); t.Failed() {
						t.Fatalf("%v returns %v, want an error reply", command, reply)
					}
					if took := time.Since(began); took > need.AtMost(10*time.Second) {
						t.Errorf("the reply to %s arrives after %v, want at most 10s", command[0], took)
					}
				}
				if pong, err := redis.String(c.Do("PING")); err != nil || pong != "PONG" {
					t.Errorf("PING returns %s, %v, want PONG", pong, err)
				}

				fault.back()
				healed := time.Now()
				eventually(t, c, "SIMBA.ACQUIRE", "new", "a", 600_000)
				t.Logf("SIMBA.ACQUIRE succeeds %v after the end of the fault", time.Since(healed))
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
		// A slow store may have executed a RELEASE that got an error reply.
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
	for end := time.Now().Add(simbatest.Patience); !server.StartOrEnd(); {
		if time.Now().After(end) {
			t.Fatalf("the server does not start:\n%s", server.Log())
		}
	}
	return server
}
