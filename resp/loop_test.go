package resp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

func TestPipelineIsCommittedAndSentOnce(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		h := &script{}
		cl := dial(t, NewServer(committing(h), h))
		cl.call(strings.Repeat("PING\r\n", 16), strings.Repeat("+PONG\r\n", 16))
		synctest.Wait()
		if writes, commits := cl.counted.writes.Load(), h.commits.Load(); writes != 1 || commits != 1 {
			t.Errorf("%d writes and %d commits, want 1 of each", writes, commits)
		}
	})
}

func TestLongPipelineIsSentInParts(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		h := &script{}
		cl := dial(t, NewServer(Config{Limits: Limits{ReplyBatch: 50}}, h))
		cl.call(strings.Repeat("PING\r\n", 20), strings.Repeat("+PONG\r\n", 20))
		synctest.Wait()
		if writes := cl.counted.writes.Load(); writes != 3 { // 8 replies reach 50 bytes
			t.Errorf("%d writes, want 3", writes)
		}
	})
}

func TestRunningTimeWithoutAPollerSpansReads(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		var since []time.Duration
		cl := dial(t, NewServer(Config{}, &script{commands: map[string]func(*Conn, [][]byte){
			"WORK": func(c *Conn, _ [][]byte) {
				since = append(since, c.runningSince.Sub(c.created))
				time.Sleep(yieldAfter / 2)
				c.Reply().Simple("DONE")
			},
		}}))
		time.Sleep(time.Second)
		for range 9 {
			cl.call("WORK\r\n", "+DONE\r\n")
		}
		for i, got := range since {
			if want := time.Second + time.Duration(i/2)*yieldAfter; got != want {
				t.Errorf("before command %d runningSince is %v, want %v", i, got, want)
			}
		}
	})
}

// doneCommitter is a Committer whose changes are durable at once.
type doneCommitter struct{ err error }

func (c doneCommitter) Commit(simba.Seq) (err error) { return c.err }

func TestDurableRepliesAreSentAtOnce(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		h := &script{commands: map[string]func(*Conn, [][]byte){
			"LOCK": func(c *Conn, _ [][]byte) { c.ReplyAfter(1); c.Reply().Simple("LOCKED") },
		}}
		dial(t, NewServer(Config{Committer: doneCommitter{}}, h)).call("LOCK\r\n", "+LOCKED\r\n")
		cl := dial(t, NewServer(Config{Committer: doneCommitter{errors.New("disk full")}}, h))
		cl.call("PING\r\n", "+PONG\r\n")
		cl.send("PING\r\nLOCK\r\n")
		cl.expectEnd("")
	})
}

func TestCommitIsCalledAfterADisconnect(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		left := make(chan struct{})
		var commitsBeforeClosed int32
		h := &script{commands: map[string]func(*Conn, [][]byte){
			"WORK": func(c *Conn, _ [][]byte) { <-left; c.Reply().Simple("DONE") },
		}}
		h.closed = func(*Conn) { commitsBeforeClosed = h.commits.Load() }
		cl := dial(t, NewServer(committing(h), h))
		cl.send("WORK\r\n")
		synctest.Wait()
		cl.Close()
		close(left)
		synctest.Wait()
		if commitsBeforeClosed != 1 {
			t.Errorf("%d commits before Closed, want 1", commitsBeforeClosed)
		}
	})
}

func TestCommitIsCalledForAKilledConnection(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		h := &script{commands: map[string]func(*Conn, [][]byte){
			"KILL": func(c *Conn, _ [][]byte) { c.Close() },
		}}
		cl := dial(t, NewServer(committing(h), h))
		cl.send("PING\r\nKILL\r\nPING\r\n")
		cl.expectEnd("")
		synctest.Wait()
		if served, commits := h.served.Load(), h.commits.Load(); served != 2 || commits != 1 {
			t.Errorf("%d commands executed and %d commits, want 2 and 1", served, commits)
		}
	})
}

func TestProtocolErrorFollowsEarlierReplies(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		h := &script{}
		cl := dial(t, NewServer(committing(h), h))
		cl.send("PING\r\n*a\r\nPING\r\n")
		cl.expectEnd("+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n")
		synctest.Wait()
		if h.served.Load() != 1 || h.commits.Load() == 0 {
			t.Errorf("%d commands executed and %d commits, want 1 and at least 1", h.served.Load(), h.commits.Load())
		}
	})
}

func TestProtocolErrorReachesAClientThatKeepsSending(t *testing.T) {
	s := NewServer(Config{}, &script{})
	addr, done := serveTCP(t, s)
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Write([]byte("*a\r\n" + strings.Repeat("x", 300_000))); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(nc)
	if want := "-ERR Protocol error: invalid multibulk length\r\n"; string(got) != want || err != nil {
		t.Errorf("received %q, %v, want the error reply", got, err)
	}
	nc.Close()
	stopServer(t, s)
	<-done
}

func TestHTTPClosesTheConnectionWithoutAReply(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		h := &script{}
		cl := dial(t, NewServer(Config{}, h))
		cl.send("POST / HTTP/1.1\r\nHost: x\r\n\r\nPING\r\n")
		cl.expectEnd("")
		if h.served.Load() != 0 {
			t.Error("the server executed an HTTP request")
		}
	})
}

func TestLimitsAreHigherOnceAuthenticated(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		h := &script{commands: map[string]func(*Conn, [][]byte){
			"AUTH": func(c *Conn, _ [][]byte) { c.SetAuthenticated(true); c.Reply().Simple("OK") },
		}}
		s := NewServer(Config{RequireAuth: func() bool { return true }}, h)
		eleven := "a 1 2 3 4 5 6 7 8 9 10\r\n"
		// AUTH changes the limits for the next command of the same batch.
		dial(t, s).call("AUTH\r\n"+eleven, "+OK\r\n+PONG\r\n")

		cl := dial(t, s)
		cl.send(eleven)
		cl.expectEnd("-ERR Protocol error: unauthenticated multibulk length\r\n")
	})
}

func TestCloseAfterReplyEndsTheBatch(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		h := &script{commands: map[string]func(*Conn, [][]byte){
			"QUIT": func(c *Conn, _ [][]byte) { c.CloseAfterReply(); c.Reply().Simple("OK") },
		}}
		cl := dial(t, NewServer(Config{}, h))
		cl.send("PING\r\nQUIT\r\nPING\r\n")
		cl.expectEnd("+PONG\r\n+OK\r\n")
	})
}

func TestSlowReaderIsServed(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		big := strings.Repeat("x", 100)
		h := &script{commands: map[string]func(*Conn, [][]byte){
			"BIG": func(c *Conn, _ [][]byte) { c.Reply().BulkString(big) },
		}}
		cl := dial(t, NewServer(Config{Limits: Limits{WriteTimeout: 10 * time.Second}}, h))
		cl.send("BIG\r\n")
		want := fmt.Sprintf("$100\r\n%s\r\n", big)
		for i := range 10 {
			time.Sleep(9 * time.Second)
			cl.expect(want[10*i : 10*(i+1)])
		}
		cl.expect(want[100:])
	})
}

func TestWriteTimeoutCountsFromTheLastProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Time, 1)
		h := &script{
			commands: map[string]func(*Conn, [][]byte){
				"BIG": func(c *Conn, _ [][]byte) { c.Reply().BulkString(strings.Repeat("x", 100)) },
			},
			closed: func(*Conn) { ended <- time.Now() },
		}
		s := NewServer(Config{Limits: Limits{WriteTimeout: 10 * time.Second}}, h)
		near, far := net.Pipe()
		defer near.Close()
		writes := &countingConn{Conn: far}
		go s.ServeConn(writes)
		start := time.Now()
		if _, err := near.Write([]byte("BIG\r\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := near.Read(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		if d := (<-ended).Sub(start); d > 15*time.Second {
			t.Errorf("the server closed the connection after %v, want at most 15 s", d)
		}
		if n := writes.writes.Load(); n > 5 {
			t.Errorf("%d writes on the socket, want at most 5", n)
		}
	})
}

func TestIdleTimeoutDisconnects(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		ended := make(chan time.Time, 1)
		h := &script{closed: func(*Conn) { ended <- time.Now() }}
		cl := dial(t, NewServer(Config{IdleTimeout: time.Minute}, h))
		time.Sleep(59 * time.Second)
		cl.call("PING\r\n", "+PONG\r\n")
		start := time.Now()
		go io.Copy(io.Discard, cl)
		if d := (<-ended).Sub(start); d != time.Minute {
			t.Errorf("the server closed the idle connection after %v, want 1 min", d)
		}
	})
}

func TestIdleTimeoutSparesConnectionsInUse(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		var inUse atomic.Bool
		inUse.Store(true)
		s := NewServer(Config{IdleTimeout: time.Minute, InUse: func(*Conn) bool { return inUse.Load() }}, &script{})
		cl := dial(t, s)
		cl.call("PING\r\n", "+PONG\r\n")
		time.Sleep(time.Hour + time.Second)
		cl.expectSilence()
		inUse.Store(false)
		start := time.Now()
		cl.expectEnd("")
		if d := time.Since(start); d > time.Minute {
			t.Errorf("the server closed the connection after %v, want at most 1 min", d)
		}
	})
}

func TestNewIdleTimeoutAppliesToOpenConnections(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		s := NewServer(Config{}, &script{})
		cl := dial(t, s)
		cl.call("PING\r\n", "+PONG\r\n")
		time.Sleep(time.Hour)
		s.SetIdleTimeout(2 * time.Hour)
		cl.expectSilence()
		start := time.Now()
		cl.expectEnd("")
		if d := time.Since(start).Round(time.Second); d != time.Hour {
			t.Errorf("the server closed the connection after %v, want 1 h", d)
		}
	})
}

func TestIdleTimeoutSparesSubscribers(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		commands := pubsub()
		commands["MONITOR"] = func(c *Conn, _ [][]byte) { c.SetAwaitsPushes(true); c.Reply().Simple("OK") }
		commands["RESET"] = func(c *Conn, _ [][]byte) { c.SetAwaitsPushes(false); c.Reply().Simple("RESET") }
		s := NewServer(Config{IdleTimeout: time.Minute}, &script{commands: commands})
		subscriber, monitor := dial(t, s), dial(t, s)
		subscriber.call("SUBSCRIBE a\r\n", confirmation("subscribe", "a", 1))
		monitor.call("MONITOR\r\n", "+OK\r\n")
		time.Sleep(time.Hour)
		s.Broker().Publish("a", "x")
		subscriber.expect(message("a", "x"))
		subscriber.call("UNSUBSCRIBE a\r\n", confirmation("unsubscribe", "a", 0))
		monitor.call("PING\r\n", "+PONG\r\n")
		subscriber.expectEnd("") // this client has no subscription any more
		monitor.call("RESET\r\n", "+RESET\r\n")
		reset := time.Now()
		monitor.expectEnd("")
		if d := time.Since(reset).Round(time.Second); d != time.Minute {
			t.Errorf("the server closed the connection %v after RESET of the monitor, want 1 min", d)
		}
	})
}

func TestIdleConnectionShrinksItsBuffers(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		s := NewServer(Config{}, &script{commands: map[string]func(*Conn, [][]byte){
			"ECHO": func(c *Conn, args [][]byte) { c.Reply().Bulk(args[1]) },
		}})
		cl := dial(t, s)
		big := strings.Repeat("x", 50_000)
		cl.call(bulk("ECHO", big), fmt.Sprintf("$%d\r\n%s\r\n", len(big), big))
		synctest.Wait()
		c := s.Conns()[0]
		if used, size := c.in.buffered(), len(c.in.buf); used != 0 || size < len(big) {
			t.Errorf("the input buffer of %d bytes has %d bytes used; want none, and room for the large command", size, used)
		}
		cl.call("PING\r\n", "+PONG\r\n") // the server may touch the buffer only after the look at it
		time.Sleep(2*shrinkCheckEvery + time.Second)
		synctest.Wait()
		if c.grown() {
			t.Errorf("idle connection keeps buffers of %d bytes for input and %d for output", len(c.in.buf), cap(c.reply.buf))
		}
		cl.call("PING\r\n", "+PONG\r\n")
	})
}
