package resp

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
)

func TestSuspendDropsRepliesAndWaitsForTheEndOfAllConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		commits, ends := make(chan struct{}), make(chan struct{})
		var stopping bool
		h := &script{
			commit: func() error { <-commits; return nil },
			closed: func(c *Conn) { stopping = c.ServerStopping(); <-ends },
		}
		s := NewServer(committing(h), h)
		cl := dial(t, s)
		cl.send("PING\r\n")
		synctest.Wait() // the reply waits for its commit
		var wg sync.WaitGroup
		suspended := false
		wg.Go(func() { s.Suspend(); suspended = true })
		synctest.Wait()
		close(commits)
		cl.expectEnd("")
		dial(t, s).expectEnd("")
		synctest.Wait()
		if suspended {
			t.Error("Suspend returned before Handler.Closed")
		}
		close(ends)
		wg.Wait()
		if !stopping {
			t.Error("ServerStopping is false, as if the client had disconnected")
		}
		s.Resume()
		dial(t, s).call("PING\r\n", "+PONG\r\n")
		s.Suspend()
		stopServer(t, s)
	})
}

// forwarded is a connection that brings the name in the client's certificate.
type forwarded struct{ net.Conn }

func (forwarded) CertificateName() string { return "billing" }
func (forwarded) RemoteAddr() net.Addr    { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5} }
func (forwarded) LocalAddr() net.Addr     { return &net.UnixAddr{Name: "/run/simba", Net: "unix"} }

func TestConnectionBringsItsIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got [3]string
		s := NewServer(Config{}, &script{commands: map[string]func(*Conn, [][]byte){"PING": func(c *Conn, _ [][]byte) {
			got = [3]string{c.CertificateName(), c.UnixSocket(), c.LocalAddr()}
			c.Reply().Simple("PONG")
		}}})
		near, far := net.Pipe()
		defer near.Close()
		go s.ServeConn(forwarded{far})
		cl := &client{t: t, Conn: near}
		cl.call("PING\r\n", "+PONG\r\n")
		if want := [3]string{"billing", "/run/simba", "/run/simba:0"}; got != want {
			t.Errorf("the connection has %q, want %q", got, want)
		}
		near.Close()
		stopServer(t, s)
	})
}
