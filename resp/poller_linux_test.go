package resp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/need"
)

// polled starts a server with a poller and returns a function that dials it. Sockets have no fake
// time, so the tests wait for events.
func polled(t *testing.T, cfg Config, h Handler) (s *Server, dial func() *client) {
	t.Helper()
	cfg.Poll = true
	return serving(t, cfg, h)
}

// serving starts a server and returns a function that dials it. The server has a poller if cfg.Poll
// is set.
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

func TestPollerServesManyConnections(t *testing.T) {
	_, dial := polled(t, Config{}, &script{commands: map[string]func(*Conn, [][]byte){
		"ECHO": func(c *Conn, args [][]byte) { c.Reply().Bulk(args[1]) },
	}})
	var all sync.WaitGroup
	for i := range 50 {
		cl := dial()
		all.Go(func() {
			for n := range 20 {
				batch, want := new(strings.Builder), new(strings.Builder)
				for range 1 + n*10 { // the largest batches need several reads
					text := fmt.Sprintf("%d-%d", i, n)
					batch.WriteString(bulk("ECHO", text))
					fmt.Fprintf(want, "$%d\r\n%s\r\n", len(text), text)
				}
				if _, err := io.WriteString(cl, batch.String()); err != nil {
					t.Error(err)
					return
				}
				got := make([]byte, want.Len())
				if _, err := io.ReadFull(cl, got); err != nil || string(got) != want.String() {
					t.Errorf("received %q (%v), want %q", got, err, want)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestCommandInPiecesIsServed(t *testing.T) {
	_, dial := polled(t, Config{}, &script{})
	cl, other := dial(), dial()
	for _, b := range []byte("*1\r\n$4\r\nPING\r\n") {
		cl.send(string(b))
		other.call("PING\r\n", "+PONG\r\n") // now the poller has seen the first piece
	}
	cl.expect("+PONG\r\n")
}

func TestCommandsBeforeEOFAreAnswered(t *testing.T) {
	_, dial := polled(t, Config{}, &script{})
	cl := dial()
	cl.send("PING\r\nPING\r\n")
	if err := cl.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	cl.expectEnd("+PONG\r\n+PONG\r\n")
}

func TestDetachedCommandBlocksNoOther(t *testing.T) {
	release := make(chan struct{})
	_, dial := polled(t, Config{}, &script{commands: map[string]func(*Conn, [][]byte){
		"WORK": func(c *Conn, _ [][]byte) { c.Detach(); <-release; c.Reply().Simple("DONE") },
	}})
	cl, other := dial(), dial()
	cl.send("WORK\r\nPING\r\n")
	other.call("PING\r\n", "+PONG\r\n")
	close(release)
	cl.expect("+DONE\r\n+PONG\r\n")
	cl.call("WORK\r\n", "+DONE\r\n")
	cl.call("PING\r\n", "+PONG\r\n")
}

func TestDetachedConnectionReadsInARound(t *testing.T) {
	detached, sent := make(chan struct{}), make(chan struct{})
	_, dial := polled(t, Config{}, &script{commands: map[string]func(*Conn, [][]byte){
		"WORK":  func(c *Conn, _ [][]byte) { c.Detach(); close(detached); <-sent },
		"WHERE": func(c *Conn, _ [][]byte) { c.Reply().Simple(fmt.Sprint(c.shared())) },
	}})
	cl, other := dial(), dial()
	cl.send("WORK\r\n")
	<-detached
	cl.send("WHERE\r\n")
	other.call("PING\r\n", "+PONG\r\n") // now the poller has seen the command
	close(sent)
	cl.expect("+true\r\n")
}

func TestYieldKeepsACommandDetached(t *testing.T) {
	where := func(c *Conn) string { return fmt.Sprint(c.shared()) }
	_, dial := polled(t, Config{}, &script{commands: map[string]func(*Conn, [][]byte){
		"WORK": func(c *Conn, _ [][]byte) {
			c.Detach()
			detached := where(c)
			c.runningSince = c.age() - yieldAfter
			c.Yield()
			c.Reply().Simple(detached + " " + where(c))
		},
	}})
	dial().call("WORK\r\n", "+false false\r\n")
}

func TestYieldLetsOtherConnectionsRun(t *testing.T) {
	served := make(chan struct{})
	_, dial := polled(t, Config{}, &script{commands: map[string]func(*Conn, [][]byte){
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
	_, dial := polled(t, Config{}, &script{})
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

// slowCommitter makes each batch that rests on a change wait.
type slowCommitter struct {
	begun        func()
	commitWaited func(seq simba.Seq)
}

func (c *slowCommitter) TryCommit(seq simba.Seq) (done bool, err error) {
	if seq == 0 {
		return true, nil
	}
	c.begun()
	return false, nil
}

func (c *slowCommitter) Commit(_ context.Context, seq simba.Seq) error {
	c.commitWaited(seq)
	return nil
}

func TestBatchesCommitInOrderWhileOthersAreServed(t *testing.T) {
	const clients = 20
	order := make(chan int, clients)
	var lined sync.WaitGroup
	lined.Add(clients)
	durable := make(chan struct{})
	h := &script{commands: map[string]func(*Conn, [][]byte){
		"LOCK": func(c *Conn, args [][]byte) {
			n, _ := strconv.Atoi(string(args[1]))
			c.RestOn(simba.Seq(n + 1))
			c.Reply().Simple(string(args[1]))
		},
	}}
	slow := &slowCommitter{begun: lined.Done, commitWaited: func(seq simba.Seq) {
		<-durable
		order <- int(seq) - 1
	}}
	_, dial := polled(t, Config{Committer: slow}, h)
	all := make([]*client, clients)
	for i := range all {
		all[i] = dial()
		all[i].send(fmt.Sprintf("LOCK %d\r\n", i))
		dial().call("PING\r\n", "+PONG\r\n") // now the batch of the client waits for its commit
	}
	lined.Wait()
	close(durable)
	for i, cl := range all {
		if n := <-order; n != i {
			t.Errorf("the commit of client %d returned as number %d", n, i)
		}
		cl.expect(fmt.Sprintf("+%d\r\n", i))
	}
}

func TestBlockedCommandOnAPoller(t *testing.T) {
	h := newBlocking(0)
	s, dial := polled(t, Config{}, h)
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

func TestBlockedCommandOnAPollerEndsAtItsDeadline(t *testing.T) {
	h := newBlocking(time.Millisecond)
	_, dial := polled(t, Config{}, h)
	cl := dial()
	for range 3 {
		cl.call("WAIT x\r\n", "+x timed out\r\n")
	}
	cl.call("PING\r\n", "+PONG\r\n")
}

// large replies to LARGE with a megabyte.
func large() (*script, string) {
	text := strings.Repeat("x", 1<<20)
	return &script{commands: map[string]func(*Conn, [][]byte){
		"LARGE": func(c *Conn, _ [][]byte) { c.Reply().BulkString(text) },
	}}, fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
}

func TestStuckReaderOnAPollerIsDisconnected(t *testing.T) {
	h, reply := large()
	ended := make(chan struct{}, 8)
	h.closed = func(*Conn) { ended <- struct{}{} }
	_, dial := polled(t, Config{Limits: Limits{WriteTimeout: 200 * time.Millisecond}}, h)
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

func TestLargeReplyIsComplete(t *testing.T) {
	h, reply := large()
	_, dial := polled(t, Config{}, h)
	cl := dial()
	const n = 16
	go io.WriteString(cl, strings.Repeat("LARGE\r\n", n))
	r, want := bufio.NewReader(cl), []byte(reply)
	got := make([]byte, len(want))
	for range n {
		if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("received bytes are not what was sent: %v", err)
		}
	}
}

func TestPushesReachAPolledConnection(t *testing.T) {
	s, dial := polled(t, Config{}, &script{commands: pubsub()})
	cl := dial()
	cl.call("SUBSCRIBE a\r\n", confirmation("subscribe", "a", 1))
	for range 100 {
		s.Broker().Publish("a", "x")
		cl.send("PING\r\n")
	}
	seen := map[string]int{}
	for f := newFrames(cl); seen["+PONG\r\n"] < 100 || seen[message("a", "x")] < 100; {
		seen[f.next(t)]++
	}
}

func TestSlowSubscriberOnAPollerMissesNothing(t *testing.T) {
	const n = 200
	// The slow subscriber reads nothing until the fast one has read all messages. On a busy machine
	// that could take longer than the usual WriteTimeout.
	limits := Limits{PushQueue: 2 * n << 16, WriteTimeout: time.Hour}
	s, dial := polled(t, Config{Limits: limits}, &script{commands: pubsub()})
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

func TestIdleTimeoutOnAPoller(t *testing.T) {
	_, dial := polled(t, Config{IdleTimeout: 20 * time.Millisecond}, &script{})
	dial().expectEnd("")
}

// Clients connect and disconnect while the test kills connections. A read or write on a reused
// descriptor would give a client the reply of another one.
func TestDescriptorIsClosedOnceAfterItsLastUse(t *testing.T) {
	s, dial := polled(t, Config{}, &script{commands: map[string]func(*Conn, [][]byte){
		"ECHO": func(c *Conn, args [][]byte) { c.Reply().Bulk(args[1]) },
	}})
	dial().call("PING\r\n", "+PONG\r\n")
	before := descriptors(t)
	stop := make(chan struct{})
	var killer, clients sync.WaitGroup
	killer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, c := range s.Conns() {
				if c.ID()%3 == 0 {
					c.Push([]byte("+PUSHED\r\n"))
					c.Close()
				}
			}
		}
	})
	for i := range 8 {
		clients.Go(func() {
			for n := range 100 {
				nc, err := net.Dial("tcp", s.Conns()[0].LocalAddr())
				if err != nil {
					t.Error(err)
					return
				}
				text := fmt.Sprintf("%d-%d", i, n)
				io.WriteString(nc, bulk("ECHO", text))
				line, err := bufio.NewReader(io.LimitReader(nc, 100)).ReadString('\n')
				if want := fmt.Sprintf("$%d\r\n", len(text)); err == nil && line != want && line != "+PUSHED\r\n" {
					t.Errorf("received %q, want %q", line, want)
				}
				nc.Close()
			}
		})
	}
	clients.Wait()
	close(stop)
	killer.Wait()
	for deadline := time.Now().Add(need.Hang); s.Stats().Connected > 1 || descriptors(t) > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d open descriptors, %d before, with %d connections", descriptors(t), before, s.Stats().Connected)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

func TestShutdownLetsPolledConnectionsFinish(t *testing.T) {
	h := newBlocking(0)
	working, work := make(chan struct{}), make(chan struct{})
	h.commands["WORK"] = func(c *Conn, _ [][]byte) {
		c.Detach()
		close(working)
		<-work
		c.Reply().Simple("DONE")
	}
	s, dial := polled(t, Config{}, h)
	busy, blocked, quiet := dial(), dial(), dial()
	busy.send("WORK\r\nPING\r\n")
	<-working
	blocked.send("WAIT x\r\n")
	<-h.waits
	quiet.call("PING\r\n", "+PONG\r\n")
	stopped := make(chan struct{})
	go func() {
		stopServer(t, s)
		close(stopped)
	}()
	quiet.expectEnd("")
	blocked.expectEnd("+x shutting down\r\n")
	select {
	case <-stopped:
		t.Error("Shutdown did not wait for the running command")
	default:
	}
	close(work)
	busy.expectEnd("+DONE\r\n+PONG\r\n")
	<-stopped
}

func TestMaxClientsOnAPoller(t *testing.T) {
	_, dial := polled(t, Config{MaxClients: 1}, &script{})
	dial().call("PING\r\n", "+PONG\r\n")
	got, err := io.ReadAll(dial())
	if want := "-ERR max number of clients reached\r\n"; string(got) != want || err != nil {
		t.Errorf("received %q (%v), want %q", got, err, want)
	}
}
