package resp

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The tests of this file use sockets, which have no fake time. So they wait for events.

// serving starts a server and returns a function that dials it.
func serving(t *testing.T, cfg Config, h Handler) (s *Server, dial func() *client) {
	t.Helper()
	s = NewServer(cfg, h)
	addr, done := serveTCP(t, s)
	t.Cleanup(func() {
		stopServer(t, s)
		<-done
	})
	return s, func() *client {
		t.Helper()
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		return &client{t: t, Conn: nc}
	}
}

func TestYieldLetsOtherConnectionsRun(t *testing.T) {
	served := make(chan struct{})
	_, dial := serving(t, Config{}, &script{commands: map[string]func(*Conn, [][]byte){
		"SERVED": func(*Conn, [][]byte) { close(served) },
		"ENDLESS": func(c *Conn, _ [][]byte) {
			c.Reply().Simple("DONE")
			for {
				select {
				case <-served:
					return
				default:
					c.Yield()
				}
			}
		},
	}})
	cl, other := dial(), dial()
	cl.send("ENDLESS\r\nPING\r\n")
	other.call("PING\r\n", "+PONG\r\n")
	other.send("SERVED\r\n")
	cl.expect("+DONE\r\n+PONG\r\n")
}

func TestHeavySenderBlocksNoOther(t *testing.T) {
	_, dial := serving(t, Config{}, &script{})
	long := bulk(slices.Repeat([]string{"PING"}, 900)...)
	for _, c := range []struct{ what, flood string }{
		{"empty commands", strings.Repeat("\r\n", 1<<15)},
		{"a command without end", "*1\r\n$65536\r\n" + strings.Repeat("x", 1<<16)},
		{"short commands", strings.Repeat("PING\r\n", 1<<12)},
		{"long commands", strings.Repeat(long, 4)},
	} {
		t.Run(c.what, func(t *testing.T) {
			flooder, other := dial(), dial()
			var flood sync.WaitGroup
			flood.Go(func() {
				for _, err := io.WriteString(flooder, c.flood); err == nil; {
					_, err = io.WriteString(flooder, c.flood)
				}
			})
			flood.Go(func() { io.Copy(io.Discard, flooder) })
			for range 200 {
				other.call("PING\r\n", "+PONG\r\n")
			}
			flooder.Close()
			flood.Wait()
		})
	}
}

func TestBlockedCommandOverTCP(t *testing.T) {
	h := newBlocking(0)
	s, dial := serving(t, Config{}, h)
	other := dial()
	for _, c := range []struct {
		what  string
		end   func(cl *client, w *Wait)
		why   Wakeup
		reply string
	}{
		{"woken", func(_ *client, w *Wait) { w.Wake() }, Woken, "+x woken\r\n"},
		{"unblocked", func(_ *client, w *Wait) { w.c.Unblock(false) }, UnblockedTimeout, "+x unblocked\r\n"},
		{"its client leaves", func(cl *client, _ *Wait) { cl.Close() }, Gone, ""},
		{"its client is killed", func(_ *client, w *Wait) { w.c.Close() }, Gone, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			cl := dial()
			cl.send("WAIT x\r\n")
			w := <-h.waits
			other.call("PING\r\n", "+PONG\r\n")
			for s.Stats().Blocked == 0 { // until the command blocks
				other.call("PING\r\n", "+PONG\r\n")
			}
			c.end(cl, w)
			if why := <-h.ends; why != c.why {
				t.Errorf("Await returned %v, want %v", why, c.why)
			}
			if c.reply != "" {
				cl.expect(c.reply)
				cl.call("PING\r\n", "+PONG\r\n")
			}
		})
	}
}

// large replies to LARGE with a megabyte.
func large() (*script, string) {
	text := strings.Repeat("x", 1<<20)
	return &script{commands: map[string]func(*Conn, [][]byte){
		"LARGE": func(c *Conn, _ [][]byte) { c.Reply().BulkString(text) },
	}}, fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
}

func TestStuckReaderOverTCPIsDisconnected(t *testing.T) {
	h, reply := large()
	ended := make(chan struct{}, 8)
	h.closed = func(*Conn) { ended <- struct{}{} }
	_, dial := serving(t, Config{Limits: Limits{WriteTimeout: 200 * time.Millisecond}}, h)
	stuck, other := dial(), dial()
	stuck.send(strings.Repeat("LARGE\r\n", 64)) // more than the sockets' buffers
	for served := 0; ; served++ {
		other.call("PING\r\n", "+PONG\r\n")
		select {
		case <-ended:
			if served == 0 {
				t.Error("the server served no other client while one did not read")
			}
			return
		default:
		}
		if served == 0 {
			other.call("LARGE\r\n", reply) // this too is larger than a socket's buffer
		}
	}
}

func TestSlowSubscriberMissesNothing(t *testing.T) {
	const n = 200
	// The slow subscriber reads nothing until the fast one has read all messages. On a busy machine
	// that could take longer than the usual WriteTimeout.
	limits := Limits{PushQueue: 2 * n << 16, WriteTimeout: time.Hour}
	s, dial := serving(t, Config{Limits: limits}, &script{commands: pubsub()})
	slow, other := dial(), dial()
	slow.call("SUBSCRIBE a\r\n", confirmation("subscribe", "a", 1))
	other.call("SUBSCRIBE a b\r\n", confirmation("subscribe", "a", 1)+confirmation("subscribe", "b", 2))
	// The texts together are larger than the sockets' buffers.
	text := func(i int) string { return fmt.Sprint(i, strings.Repeat("x", 1<<16)) }
	var reading sync.WaitGroup
	reading.Go(func() {
		frames := newFrames(other)
		for i := range n {
			if got := frames.next(t); got != message("a", text(i)) {
				t.Errorf("the fast subscriber received %.40q as number %d", got, i)
				return
			}
		}
	})
	for i := range n {
		if got := s.Broker().Publish("a", text(i)); got != 2 {
			t.Fatalf("Publish counts %d receivers of message %d, want 2", got, i)
		}
	}
	reading.Wait()
	slow.send("PING\r\n")
	for i, frames := 0, newFrames(slow); i < n; {
		switch got := frames.next(t); got {
		case message("a", text(i)):
			i++
		case "+PONG\r\n":
		default:
			t.Fatalf("the slow subscriber received %.40q as number %d", got, i)
		}
	}
}
