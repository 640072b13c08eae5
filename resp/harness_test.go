package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/simba-resp/simba-resp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a Handler with the commands of a test. PING and unknown commands reply +PONG.
type script struct {
	commands map[string]func(c *Conn, args [][]byte)
	commit   func() error // called by Commit; nil = Commit succeeds
	closed   func(c *Conn)

	served  atomic.Int32
	commits atomic.Int32
}

func (h *script) Execute(c *Conn, args [][]byte) {
	h.served.Add(1)
	if c.server.cfg.Committer == simba.Committer(h) {
		c.ReplyAfter(1)
	}
	if f := h.commands[strings.ToUpper(string(args[0]))]; f != nil {
		f(c, args)
		return
	}
	c.Reply().Simple("PONG")
}

func (h *script) Commit(simba.Seq) error {
	h.commits.Add(1)
	if h.commit != nil {
		return h.commit()
	}
	return nil
}

// committing returns the configuration of a server whose Committer is h.
func committing(h *script) Config { return Config{Committer: h} }

func (h *script) Opened(*Conn) {}

func (h *script) Closed(c *Conn) {
	if h.closed != nil {
		h.closed(c)
	}
}

// pubsub returns commands that subscribe and unsubscribe, with confirmations as in Redis.
func pubsub() map[string]func(c *Conn, args [][]byte) {
	confirm := func(c *Conn, what, name string) {
		c.Reply().Push(3)
		c.Reply().BulkString(what)
		c.Reply().BulkString(name)
		c.Reply().Int(int64(c.SubscriptionCount()))
	}
	return map[string]func(c *Conn, args [][]byte){
		"SUBSCRIBE": func(c *Conn, args [][]byte) {
			for _, name := range args[1:] {
				c.Subscribe(KindChannel, string(name))
				confirm(c, "subscribe", string(name))
			}
		},
		"PSUBSCRIBE": func(c *Conn, args [][]byte) {
			c.Subscribe(KindPattern, string(args[1]))
			confirm(c, "psubscribe", string(args[1]))
		},
		"SSUBSCRIBE": func(c *Conn, args [][]byte) {
			c.Subscribe(KindShard, string(args[1]))
			confirm(c, "ssubscribe", string(args[1]))
		},
		"UNSUBSCRIBE": func(c *Conn, args [][]byte) {
			for _, name := range args[1:] {
				c.Unsubscribe(KindChannel, string(name))
				confirm(c, "unsubscribe", string(name))
			}
		},
		"HELLO": func(c *Conn, args [][]byte) {
			c.SetProto(int(args[1][0] - '0'))
			c.Reply().Simple("PROTO")
		},
	}
}

// client is the other end of a connection.
type client struct {
	t *testing.T
	net.Conn
	counted *countingConn
	refused bool // the server refused its TLS handshake
}

// dial connects a client to s over a pipe. It uses TLS if onEachTransport runs the test for TLS.
func dial(t *testing.T, s *Server) *client {
	t.Helper()
	near, far := net.Pipe()
	cl := &client{t: t, Conn: near, counted: &countingConn{Conn: far}}
	var config *tls.Config
	if strings.HasSuffix(t.Name(), overTLS) {
		config = certified(t).serverConfig()
		cl.Conn = tls.Client(near, certified(t).clientConfig())
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.serveConn(cl.counted, config) })
	t.Cleanup(func() {
		near.Close()
		wg.Wait()
	})
	if shaking, ok := cl.Conn.(*tls.Conn); ok {
		cl.refused = shaking.Handshake() != nil
		cl.counted.writes.Store(0)
	}
	return cl
}

func (cl *client) send(s string) {
	cl.t.Helper()
	if _, err := cl.Write([]byte(s)); err != nil {
		cl.t.Fatalf("send %q: %v", s, err)
	}
}

// expect reads exactly the wanted bytes.
func (cl *client) expect(want string) {
	cl.t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(cl, got)
	if string(got[:n]) != want {
		cl.t.Fatalf("received %q (%v), want %q", got[:n], err, want)
	}
}

func (cl *client) call(command, want string) {
	cl.t.Helper()
	cl.send(command)
	cl.expect(want)
}

// expectEnd reads until the server closes the connection, and expects exactly the wanted bytes.
func (cl *client) expectEnd(want string) {
	cl.t.Helper()
	if cl.refused {
		return // the server has closed the connection already
	}
	got, err := io.ReadAll(cl)
	if string(got) != want || err != nil {
		cl.t.Fatalf("received %q (%v), want %q and the end", got, err, want)
	}
}

// expectSilence fails if there is anything to read once all goroutines of the bubble are blocked.
func (cl *client) expectSilence() {
	cl.t.Helper()
	synctest.Wait()
	cl.SetReadDeadline(time.Now().Add(time.Nanosecond))
	defer cl.SetReadDeadline(time.Time{})
	var b [256]byte
	if n, err := cl.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		cl.t.Fatalf("received %q (%v), want silence", b[:n], err)
	}
}

// countingConn counts the calls of Write.
type countingConn struct {
	net.Conn
	writes atomic.Int32
}

func (c *countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// stopServer shuts an idle server down.
func stopServer(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Shutdown(context.Background()); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

func bulk(words ...string) string {
	var w Writer
	w.Array(len(words))
	for _, s := range words {
		w.BulkString(s)
	}
	return string(w.Bytes())
}

func message(channel, payload string) string { return bulk("message", channel, payload) }

func confirmation(what, name string, count int) string {
	var w Writer
	w.Array(3)
	w.BulkString(what)
	w.BulkString(name)
	w.Int(int64(count))
	return string(w.Bytes())
}
