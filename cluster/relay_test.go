package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/certs"
)

// relayed is a member that passes its clients on to a leader, which serves each with a function.
type relayed struct {
	front
	t       *testing.T
	lead    net.Listener
	clients chan client // that forward got
	none    atomic.Bool // there is no leader
	change  context.CancelFunc
}

func newRelayed(t *testing.T, config *tls.Config, serve func(net.Conn)) *relayed {
	listen := func() net.Listener {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	r := &relayed{t: t, lead: listen(), clients: make(chan client, 10)}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			nc, err := r.lead.Accept()
			if err != nil {
				return
			}
			running.Go(func() { defer nc.Close(); serve(nc) })
		}
	})
	ctx, change := context.WithCancel(t.Context())
	r.change = change
	r.front = front{
		Listener: listen(), tls: config, running: &running, slots: make(chan struct{}, 10),
		serves: func() bool { return false },
		leader: func() context.Context { return ctx },
		forward: func(ctx context.Context, c client) (net.Conn, error) {
			if r.none.Load() {
				return nil, errors.New("there is no leader")
			}
			r.clients <- c
			return new(net.Dialer).DialContext(ctx, "tcp", r.lead.Addr().String())
		},
	}
	running.Go(func() {
		if nc, err := r.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept returned %v, %v", nc, err)
		}
	})
	t.Cleanup(func() {
		r.front.Close()
		change()
		r.lead.Close()
		running.Wait()
	})
	return r
}

func (r *relayed) dial() *net.TCPConn {
	r.t.Helper()
	nc, err := net.Dial("tcp", r.front.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	r.t.Cleanup(func() { nc.Close() })
	return nc.(*net.TCPConn)
}

// send sends text, and expects exactly the wanted bytes up to the end of the stream.
func send(t *testing.T, nc net.Conn, text, want string) {
	t.Helper()
	if _, err := io.WriteString(nc, text); err != nil {
		t.Fatal(err)
	}
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	if got, err := io.ReadAll(nc); string(got) != want || err != nil {
		t.Errorf("received %d bytes, %.100q (%v), want %.100q", len(got), got, err, want)
	}
}

func TestRelayPassesAllBytesInBothDirections(t *testing.T) {
	sent := strings.Repeat("0123456789", 100_000)
	r := newRelayed(t, nil, func(nc net.Conn) {
		got, err := io.ReadAll(nc) // until the client ends its stream
		fmt.Fprint(nc, err, string(got))
	})
	nc := r.dial()
	send(t, nc, sent, "<nil>"+sent)
	if c := <-r.clients; c.Remote != nc.LocalAddr().String() || c.Local != nc.RemoteAddr().String() || c.CertificateName != "" {
		t.Errorf("the leader gets the client %+v, want that of %v", c, nc.LocalAddr())
	}
}

func TestRelayEndsTLS(t *testing.T) {
	authority := certs.NewAuthority(t, "test CA")
	own := authority.Sign(t, certs.Leaf{Name: "billing"})
	r := newRelayed(t, &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own.Certificate},
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: authority.Pool,
	}, func(nc net.Conn) { fmt.Fprint(nc, "hello") })
	secured := tls.Client(r.dial(), &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own.Certificate}, RootCAs: authority.Pool, ServerName: "localhost",
	})
	send(t, secured, "PING", "hello")
	if c := <-r.clients; c.CertificateName != "billing" {
		t.Errorf("the client has the name %q in its certificate, want billing", c.CertificateName)
	}
	plain := r.dial()
	if _, err := io.WriteString(plain, "PING\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(plain); err != nil || strings.Contains(string(got), "hello") {
		t.Errorf("without TLS, the client received %q (%v)", got, err)
	}
}

func TestWithoutALeaderTheClientIsToldToTryAgain(t *testing.T) {
	r := newRelayed(t, nil, nil)
	r.none.Store(true)
	silent := r.dial()
	send(t, r.dial(), "HELLO 3\r\nAUTH a b\r\n"+strings.Repeat("PING\r\n", 1000), noLeader)
	silent.Close()
}

func TestRelayClosesClientsOfAFormerLeader(t *testing.T) {
	hangs := make(chan struct{})
	r := newRelayed(t, nil, func(net.Conn) { <-hangs }) // it does not answer any more
	defer close(hangs)
	nc, ended := r.dial(), r.dial()
	_ = ended.CloseWrite()
	<-r.clients
	<-r.clients
	r.change()
	for _, nc := range []net.Conn{nc, ended} {
		if got, _ := io.ReadAll(nc); len(got) != 0 {
			t.Errorf("the client received %q", got)
		}
	}
}

func TestRelayClosesClientsBeyondItsLimit(t *testing.T) {
	r := newRelayed(t, nil, func(nc net.Conn) { _, _ = io.ReadAll(nc) })
	for range cap(r.slots) {
		r.dial()
		<-r.clients
	}
	if got, err := io.ReadAll(r.dial()); len(got) != 0 {
		t.Errorf("one client too many received %q (%v)", got, err)
	}
}

func TestRelayClosesTheConnectionToTheLeaderWhenTheClientIsGone(t *testing.T) {
	gone := make(chan error, 1)
	r := newRelayed(t, nil, func(nc net.Conn) { _, err := io.ReadAll(nc); gone <- err })
	nc := r.dial()
	<-r.clients
	_ = nc.SetLinger(0) // Close resets the connection
	nc.Close()
	<-gone
}
