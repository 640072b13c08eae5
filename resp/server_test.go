package resp

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// serveTCP serves on a free port until Shutdown. done is closed when Serve has returned.
func serveTCP(t *testing.T, s *Server) (addr string, done <-chan struct{}) {
	t.Helper()
	return serveOn(t, s, nil)
}

// serveOn is serveTCP, but with TLS if config is not nil.
func serveOn(t *testing.T, s *Server, config *tls.Config) (addr string, done <-chan struct{}) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		if err := s.acceptLoop(ln, config); err != nil {
			t.Errorf("acceptLoop: %v", err)
		}
	}()
	return ln.Addr().String(), returned
}

func TestAServerOverTCP(t *testing.T) {
	s := NewServer(Config{}, &script{})
	addr, done := serveTCP(t, s)
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	cl := &client{t: t, Conn: nc}
	cl.call("PING\r\n"+bulk("PING"), "+PONG\r\n+PONG\r\n")
	nc.Close()
	stopServer(t, s)
	<-done
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the server still accepts after Shutdown")
	}
	if st := s.Stats(); st.ConnectionsReceived != 1 || st.Connected != 0 || st.BytesIn == 0 || st.BytesOut == 0 {
		t.Errorf("Stats after Shutdown: %+v, want 1 received connection, 0 connected, and bytes in and out", st)
	}
}

func TestMaxClients(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		s := NewServer(Config{MaxClients: 1}, &script{})
		first := dial(t, s)
		first.call("PING\r\n", "+PONG\r\n")
		dial(t, s).expectEnd("-ERR max number of clients reached\r\n")
		mute := dial(t, s) // does not read the error
		time.Sleep(time.Second)
		mute.expectEnd("")
		if st := s.Stats(); st.Rejected != 2 || st.Connected != 1 || st.ConnectionsReceived != 3 {
			t.Errorf("stats %+v, want 2 rejected, 1 connected, 3 received", st)
		}
		first.Close()
		synctest.Wait()
		dial(t, s).call("PING\r\n", "+PONG\r\n")
		s.SetMaxClients(2)
		dial(t, s).call("PING\r\n", "+PONG\r\n")
		if s.MaxClients() != 2 || len(s.Conns()) != 2 || s.Conns()[0].ID() >= s.Conns()[1].ID() {
			t.Errorf("%d clients connected, limit %d; want 2 and 2, and the clients in the order of their ids", len(s.Conns()), s.MaxClients())
		}
	})
}

func TestShutdownLetsRunningCommandsReply(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		working, work := make(chan struct{}), make(chan struct{})
		h := &script{commands: map[string]func(*Conn, [][]byte){
			"WORK": func(c *Conn, _ [][]byte) {
				close(working)
				<-work
				c.Reply().Simple("DONE")
			},
		}}
		s := NewServer(committing(h), h)
		busy, idle := dial(t, s), dial(t, s)
		busy.send("WORK\r\nPING\r\n")
		<-working
		stopped := make(chan struct{})
		go func() {
			stopServer(t, s)
			stopServer(t, s)
			close(stopped)
		}()
		idle.expectEnd("")
		synctest.Wait()
		select {
		case <-stopped:
			t.Fatal("Shutdown did not wait for the running command")
		default:
		}
		dial(t, s).expectEnd("") // new connections are refused
		close(work)
		busy.expectEnd("+DONE\r\n+PONG\r\n")
		<-stopped
		if h.commits.Load() == 0 {
			t.Error("the server did not commit")
		}
	})
}

func TestShutdownTimeoutClosesConnections(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		h := &script{commands: map[string]func(*Conn, [][]byte){
			"HANG": func(c *Conn, _ [][]byte) { <-c.Context().Done() },
		}}
		s := NewServer(Config{}, h)
		cl := dial(t, s)
		cl.send("HANG\r\n")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		start := time.Now()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 10*time.Second {
			t.Errorf("Shutdown returned %v after %v, want DeadlineExceeded after 10 s", err, time.Since(start))
		}
		cl.expectEnd("")
		stopServer(t, s) // waits for the handler
	})
}

func TestShutdownDoesNotWaitForAStuckSubscriber(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		s := NewServer(Config{}, &script{commands: pubsub()})
		cl := dial(t, s)
		cl.call("SUBSCRIBE a\r\n", confirmation("subscribe", "a", 1))
		s.Broker().Publish("a", "x")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown returned %v, want DeadlineExceeded", err)
		}
		stopServer(t, s)
	})
}

// fakeListener fails a number of times and then accepts one connection.
type fakeListener struct {
	err      error
	failures int
	accepts  atomic.Int32
	conn     net.Conn
	closed   chan struct{}
}

func (l *fakeListener) Accept() (net.Conn, error) {
	switch n := int(l.accepts.Add(1)); {
	case n <= l.failures:
		return nil, &net.OpError{Op: "accept", Err: l.err}
	case n == l.failures+1:
		return l.conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *fakeListener) Close() error   { close(l.closed); return nil }
func (l *fakeListener) Addr() net.Addr { return &net.TCPAddr{} }

func TestAcceptBacksOffWithoutDescriptors(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		near, far := net.Pipe()
		ln := &fakeListener{err: syscall.EMFILE, failures: 20, conn: far, closed: make(chan struct{})}
		s := NewServer(Config{}, &script{})
		served := make(chan error)
		go func() { served <- s.Serve(ln) }()
		time.Sleep(5 * time.Second)
		if n := ln.accepts.Load(); n > 15 {
			t.Errorf("Accept was called %d times in 5 s, want at most 15", n)
		}
		cl := &client{t: t, Conn: near}
		cl.call("PING\r\n", "+PONG\r\n") // the server accepts again when descriptors are free
		near.Close()
		stopServer(t, s)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func TestShutdownEndsTheAcceptBackoff(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		ln := &fakeListener{err: syscall.EMFILE, failures: 1 << 30, closed: make(chan struct{})}
		s := NewServer(Config{}, &script{})
		served := make(chan error)
		go func() { served <- s.Serve(ln) }()
		time.Sleep(10 * time.Second)
		start := time.Now()
		stopServer(t, s)
		if err := <-served; err != nil || time.Since(start) != 0 {
			t.Errorf("Serve returned %v, %v after Shutdown; want nil at once", err, time.Since(start))
		}
	})
}

func TestABrokenListenerEndsServe(t *testing.T) {
	ln := &fakeListener{err: syscall.EINVAL, failures: 1, closed: make(chan struct{})}
	s := NewServer(Config{}, &script{})
	defer stopServer(t, s)
	if err := s.Serve(ln); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Serve returned %v, want EINVAL", err)
	}
}

func TestServeAfterShutdownClosesTheListener(t *testing.T) {
	s := NewServer(Config{}, &script{})
	stopServer(t, s)
	ln := &fakeListener{closed: make(chan struct{})}
	if err := s.Serve(ln); err != nil {
		t.Error(err)
	}
	<-ln.closed
}

// frames reads whole frames from a connection.
type frames struct{ r *bufio.Reader }

func newFrames(r io.Reader) *frames { return &frames{r: bufio.NewReader(r)} }

// next returns the next frame: a simple string, or an array of three bulks.
func (f *frames) next(t *testing.T) string {
	t.Helper()
	lines := 1
	if first, err := f.r.Peek(1); err == nil && first[0] == '*' {
		lines = 7
	}
	var frame strings.Builder
	for range lines {
		line, err := f.r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		frame.WriteString(line)
	}
	return frame.String()
}
