package tests

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// conn connects to the server with no timeouts.
func conn(t testing.TB, s *server) redis.Conn {
	t.Helper()
	c, err := redis.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a command whose reply is a record.
func ask(t testing.TB, c redis.Conn, command string, args ...any) record {
	t.Helper()
	r, err := toRecord(c.Do(command, args...))
	if err != nil {
		t.Fatalf("%s %v: %v", command, args, err)
	}
	return r
}

// yes sends a command that must be answered with 1.
func yes(t testing.TB, c redis.Conn, command string, args ...any) {
	t.Helper()
	if n, err := redis.Int(c.Do(command, args...)); err != nil || n != 1 {
		t.Fatalf("%s %v: %d, %v", command, args, n, err)
	}
}

// waiting is a blocked ACQUIRE on a connection of its own.
type waiting struct {
	conn redis.Conn
	came chan struct{}
	got  record
	err  error
}

// wait sends ACQUIRE … WAIT and returns when the server has blocked it.
func wait(t testing.TB, s *server, mutex, contender string, options ...any) *waiting {
	t.Helper()
	before, err := blockedClients(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	w := &waiting{conn: conn(t, s), came: make(chan struct{})}
	go func() {
		defer close(w.came)
		w.got, w.err = toRecord(w.conn.Do("SIMBA.ACQUIRE", append([]any{mutex, contender, 600_000, "WAIT", 0}, options...)...))
	}()
	blocked(t, s.addr, before+1)
	return w
}

// granted returns the token that the waiter was told.
func (w *waiting) granted(t testing.TB) int64 {
	t.Helper()
	select {
	case <-w.came:
	case <-time.After(patience):
		t.Fatal("the waiter is not granted the mutex")
	}
	if w.err != nil || w.got["status"] != "acquired" {
		t.Fatalf("the waiter got %v, %v", w.got, w.err)
	}
	return w.got["token"].(int64)
}

// ear is a client that listens.
type ear struct {
	t     testing.TB
	heard chan redis.Message
	seen  []string // and not returned
}

// listen returns when the server has confirmed the subscription.
func listen(t testing.TB, s *server, command string, channels ...any) *ear {
	t.Helper()
	c := conn(t, s)
	if err := c.Send(command, channels...); err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	ps := redis.PubSubConn{Conn: c}
	for range channels {
		if _, ok := ps.Receive().(redis.Subscription); !ok {
			t.Fatalf("%s %v is not confirmed", command, channels)
		}
	}
	e := &ear{t: t, heard: make(chan redis.Message, 1000)}
	go func() {
		for {
			switch m := ps.Receive().(type) {
			case redis.Message:
				e.heard <- m
			case error:
				return
			}
		}
	}()
	return e
}

// hears returns the first message on the channel that begins with want, of those
// that it has not returned yet. There is no order among channels.
func (e *ear) hears(channel, want string) string {
	e.t.Helper()
	want = channel + " " + want
	like := func(seen string) bool { return strings.HasPrefix(seen, want) }
	deadline := time.After(patience)
	for {
		if i := slices.IndexFunc(e.seen, like); i >= 0 {
			got := e.seen[i]
			e.seen = slices.Delete(e.seen, i, i+1)
			return strings.TrimPrefix(got, channel+" ")
		}
		select {
		case m := <-e.heard:
			e.seen = append(e.seen, m.Channel+" "+string(m.Data))
		case <-deadline:
			e.t.Fatalf("nothing like %q, but %q", want, e.seen)
		}
	}
}

func TestTwoServersShareAStore(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *shared) {
		one, other := s.serve(t), s.serve(t)
		a, b := conn(t, one), conn(t, other)

		t.Run("a waiter on one is granted what the other releases", func(t *testing.T) {
			first := ask(t, a, "SIMBA.ACQUIRE", "wait", "a", 600_000)
			w := wait(t, other, "wait", "b")
			if got := ask(t, a, "SIMBA.OWNER", "wait"); got["owner"] != "a" || got["token"] != first["token"] {
				t.Errorf("the owner is %v", got)
			}
			yes(t, a, "SIMBA.RELEASE", "wait", "a", "TOKEN", first["token"])
			second := w.granted(t)
			if second <= first["token"].(int64) {
				t.Errorf("token %d after %v", second, first["token"])
			}
			// And each sees the same of it, and refuses the old token.
			for name, c := range map[string]redis.Conn{"one": a, "other": b} {
				if got := ask(t, c, "SIMBA.OWNER", "wait"); got["owner"] != "b" || got["token"] != second {
					t.Errorf("on the %s server the owner is %v", name, got)
				}
				yes(t, c, "SIMBA.CHECK", "wait", second)
				if n, err := redis.Int(c.Do("SIMBA.CHECK", "wait", first["token"])); err != nil || n != 0 {
					t.Errorf("on the %s server the old token: %d, %v", name, n, err)
				}
			}
		})
		t.Run("what replies call no token is the token of no tenure", func(t *testing.T) {
			ask(t, a, "SIMBA.ACQUIRE", "zero", "a", 600_000)
			for _, mutex := range []string{"zero", "nobodys"} {
				if n, err := redis.Int(a.Do("SIMBA.CHECK", mutex, 0)); err != nil || n != 0 {
					t.Errorf("SIMBA.CHECK %s 0: %d, %v, want 0", mutex, n, err)
				}
			}
		})
		t.Run("an owner renews and releases on either", func(t *testing.T) {
			first := ask(t, a, "SIMBA.ACQUIRE", "either", "a", 600_000)
			for _, command := range []string{"SIMBA.GUARD", "SIMBA.ACQUIRE"} {
				if got := ask(t, b, command, "either", "a", 600_000); got["status"] != "renewed" || got["token"] != first["token"] {
					t.Errorf("%s on the other server: %v", command, got)
				}
			}
			yes(t, b, "SIMBA.RELEASE", "either", "a")
			if got, err := a.Do("SIMBA.OWNER", "either"); err != nil || got != nil {
				t.Errorf("after the release its owner is %v, %v", got, err)
			}
		})
		t.Run("a polling waiter is told of its turn by the server that it listens to", func(t *testing.T) {
			ask(t, a, "SIMBA.ACQUIRE", "poll", "a", 600_000)
			own := listen(t, other, "SUBSCRIBE", "simba:{poll}:b")
			if got := ask(t, b, "SIMBA.ACQUIRE", "poll", "b", 600_000); got["status"] != "queued" || got["owner"] != "a" {
				t.Fatalf("b: %v", got)
			}
			yes(t, a, "SIMBA.RELEASE", "poll", "a")
			own.hears("simba:{poll}:b", "released@@a")
			if got := ask(t, b, "SIMBA.ACQUIRE", "poll", "b", 600_000); got["status"] != "acquired" {
				t.Errorf("b in its turn: %v", got)
			}
		})
		t.Run("tenures of one are announced by the other", func(t *testing.T) {
			leaders := listen(t, other, "SUBSCRIBE", "simba:{told}", "simba-events:{told}")
			first := ask(t, a, "SIMBA.ACQUIRE", "told", "a", 600_000)
			leaders.hears("simba:{told}", "acquired@@a")
			var event struct {
				Event, Mutex, Owner string
				Token, Seq, At      int64
			}
			text := leaders.hears("simba-events:{told}", "")
			if err := json.Unmarshal([]byte(text), &event); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if event.Event != "acquired" || event.Mutex != "told" || event.Owner != "a" || event.Token != first["token"] || event.Seq == 0 || event.At == 0 {
				t.Errorf("the event is %s", text)
			}
			yes(t, a, "SIMBA.RELEASE", "told", "a")
			ask(t, a, "SIMBA.ACQUIRE", "told", "b", 600_000)
			leaders.hears("simba:{told}", "acquired@@b")
		})
		t.Run("patterns hear all mutexes of both", func(t *testing.T) {
			all := listen(t, one, "PSUBSCRIBE", "simba*")
			ask(t, a, "SIMBA.ACQUIRE", "here", "x", 600_000)
			ask(t, b, "SIMBA.ACQUIRE", "there", "y", 600_000)
			heard := map[string]bool{}
			for deadline := time.After(patience); len(heard) < 4; {
				select {
				case m := <-all.heard:
					switch text := string(m.Data); {
					case m.Channel == "simba:{here}" && text == "acquired@@x",
						m.Channel == "simba:{there}" && text == "acquired@@y",
						m.Channel == "simba-events:{here}" && strings.Contains(text, `"event":"acquired"`),
						m.Channel == "simba-events:{there}" && strings.Contains(text, `"event":"acquired"`):
						if heard[m.Channel] {
							t.Errorf("%s hears %s twice", m.Channel, text)
						}
						heard[m.Channel] = true
					}
				case <-deadline:
					t.Fatalf("heard only %v", heard)
				}
			}
		})
		t.Run("a session that ends on one makes way for a waiter on the other", func(t *testing.T) {
			holder := conn(t, one)
			ask(t, holder, "SIMBA.ACQUIRE", "session", "a", 600_000, "SESSION")
			w := wait(t, other, "session", "b")
			holder.Close()
			w.granted(t)
		})
		t.Run("what one holds the other scans and counts", func(t *testing.T) {
			ask(t, a, "SIMBA.ACQUIRE", "scanned", "a", 600_000)
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
			if !strings.Contains(info, "engine:"+s.engine+"\r\n") || strings.Contains(info, "durability") || strings.Contains(info, ":-") {
				t.Errorf("INFO says\n%s", info)
			}
			if strings.Contains(one.out.String(), "durability") {
				t.Errorf("the log says\n%s", one.out.String())
			}
		})
	})
}

// tryAgain fails unless the error is what a client is told of a store that is away.
func tryAgain(t testing.TB, engine string, err error) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), "TRYAGAIN engine "+engine+" unavailable: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("the client is told: %v", err)
	}
}

// away asks until the store does not answer: a process that is told to freeze may do
// something yet.
func away(t testing.TB, c redis.Conn, engine string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if _, err := c.Do("SIMBA.OWNER", "away"); err != nil {
			tryAgain(t, engine, err)
			return
		}
	}
	t.Fatal("the store still answers")
}

// eventually asks until the store answers again.
func eventually(t testing.TB, c redis.Conn, command string, args ...any) record {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		r, err := toRecord(c.Do(command, args...))
		if err == nil {
			return r
		}
		if !strings.HasPrefix(err.Error(), "TRYAGAIN ") {
			t.Fatalf("%s %v: %v", command, args, err)
		}
	}
	t.Fatalf("%s %v: still TRYAGAIN", command, args)
	return nil
}

// queueUp is wait for a server that may refuse the request because its store is slow: it asks again.
func queueUp(t testing.TB, s *server, mutex, contender string) *waiting {
	t.Helper()
	before, err := blockedClients(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); {
		w := &waiting{conn: conn(t, s), came: make(chan struct{})}
		go func() {
			defer close(w.came)
			w.got, w.err = toRecord(w.conn.Do("SIMBA.ACQUIRE", mutex, contender, 600_000, "WAIT", 0))
		}()
		for refused := false; !refused && time.Now().Before(end); {
			if n, err := blockedClients(s.addr); err == nil && n == before+1 {
				return w
			}
			select {
			case <-w.came:
				if refused = w.err != nil && strings.HasPrefix(w.err.Error(), "TRYAGAIN "); !refused {
					t.Fatalf("%s is answered %v, %v", contender, w.got, w.err)
				}
			default:
			}
		}
	}
	t.Fatalf("%s does not wait", contender)
	return nil
}

func TestAStoreThatGoesAwayIsToldAndComesBackWithoutARestart(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *shared) {
		server := s.serveBriefly(t, s.store.Addr, time.Second)
		c := conn(t, server)
		// A store that froze holds connections open and answers nothing; one that stopped
		// refuses them.
		for _, fault := range []struct {
			name       string
			away, back func()
		}{
			{"frozen", s.store.Pause, s.store.Resume},
			{"stopped", s.store.Stop, s.store.Start},
		} {
			t.Run(fault.name, func(t *testing.T) {
				eventually(t, c, "SIMBA.ACQUIRE", "before", "a", 600_000)
				fault.away()
				away(t, c, s.engine)
				commands := [][]any{
					{"SIMBA.ACQUIRE", "new", "a", 600_000}, {"SIMBA.GUARD", "before", "a", 600_000}, {"SIMBA.OWNER", "before"},
					{"SIMBA.CHECK", "before", 1}, {"SIMBA.RELEASE", "other", "a"}, {"SIMBA.SCAN", 0}, {"DBSIZE"},
				}
				if s.engine != "mysql" { // which has the queue itself
					commands = append(commands, []any{"SIMBA.QUEUE", "before"})
				}
				for _, command := range commands {
					began := time.Now()
					reply, err := c.Do(command[0].(string), command[1:]...)
					if tryAgain(t, s.engine, err); t.Failed() {
						t.Fatalf("%v is answered %v", command, reply)
					}
					if took := time.Since(began); took > 10*time.Second { // of a deadline of one
						t.Errorf("%s is answered after %v", command[0], took)
					}
				}
				if pong, err := redis.String(c.Do("PING")); err != nil || pong != "PONG" {
					t.Errorf("PING: %s, %v", pong, err)
				}

				fault.back()
				healed := time.Now()
				eventually(t, c, "SIMBA.ACQUIRE", "new", "a", 600_000)
				t.Logf("served again after %v", time.Since(healed))
			})
		}
	})
}

func TestAWaiterOutlastsAnOutageOfTheStore(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *shared) {
		server := s.serveBriefly(t, s.store.Addr, time.Second)
		c := conn(t, server)
		eventually(t, c, "SIMBA.ACQUIRE", "job", "a", 600_000)
		w := queueUp(t, server, "job", "b")
		s.store.Pause()
		away(t, c, s.engine)
		s.store.Resume()
		// What a's session kept in ZooKeeper may be lost by now: then b has it already. On a busy
		// machine the store may be slow, and the RELEASE that was refused be done.
		for end := time.Now().Add(patience); time.Now().Before(end); {
			if _, err := c.Do("SIMBA.RELEASE", "job", "a"); err == nil {
				break
			} else if !strings.HasPrefix(err.Error(), "TRYAGAIN ") {
				t.Fatal(err)
			}
		}
		w.granted(t)
	})
}

func TestAServerStopsInOrderWhileItsStoreIsAway(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *shared) {
		server := s.serveBriefly(t, s.store.Addr, time.Second)
		eventually(t, conn(t, server), "SIMBA.ACQUIRE", "job", "a", 600_000)
		w := queueUp(t, server, "job", "b")
		s.store.Pause()
		server.signal(t, syscall.SIGTERM)
		if code := server.wait(t); code != 0 {
			t.Errorf("exit code %d:\n%s", code, server.out.String())
		}
		select {
		case <-w.came:
		case <-time.After(patience):
			t.Fatal("the waiter is not answered")
		}
		if w.err == nil {
			t.Errorf("the waiter is told %v", w.got)
		}
	})
}
