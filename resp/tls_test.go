package resp

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/tests/certs"
)

// strange connects to the TLS port of s, and returns the client's end without TLS.
func strange(t *testing.T, s *Server, config *tls.Config) net.Conn {
	t.Helper()
	near, far := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() { s.serveConn(far, config) })
	t.Cleanup(func() {
		near.Close()
		wg.Wait()
	})
	return near
}

func TestHandshakeTimeout(t *testing.T) {
	for _, name := range []string{"nothing", "a byte a second"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewServer(Config{MaxClients: 1}, &script{})
				nc := strange(t, s, certified(t).serverConfig())
				start := time.Now()
				if name != "nothing" {
					var dribble sync.WaitGroup
					defer dribble.Wait()
					dribble.Go(func() {
						for _, b := range append([]byte{22, 3, 1, 0, 200}, make([]byte, 200)...) {
							if _, err := nc.Write([]byte{b}); err != nil {
								return
							}
							time.Sleep(time.Second)
						}
					})
				}
				synctest.Wait()
				if st := s.Stats(); st.Connected != 1 {
					t.Errorf("%d connections during the handshake, want 1", st.Connected)
				}
				// A connection counts towards MaxClients during its handshake.
				dial(t, s).expectEnd("-ERR max number of clients reached\r\n")
				if _, err := io.ReadAll(nc); err != nil || time.Since(start) != defaultHandshakeTimeout {
					t.Errorf("the connection ended after %v with error %v, want nil after the handshake timeout", time.Since(start), err)
				}
				synctest.Wait()
				if st := s.Stats(); st.Connected != 0 {
					t.Errorf("%d connections after the handshake timeout, want 0", st.Connected)
				}
			})
		})
	}
}

func TestHandshakeBlocksNoOther(t *testing.T) {
	s := NewServer(Config{}, &script{})
	addr, done := serveOn(t, s, certified(t).serverConfig())
	for range 10 {
		mute, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer mute.Close()
	}
	nc, err := tls.Dial("tcp", addr, certified(t).clientConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	(&client{t: t, Conn: nc}).call("PING\r\n", "+PONG\r\n")
	start := time.Now()
	stopServer(t, s) // a handshake does not delay a shutdown either
	<-done
	if d := time.Since(start); d >= defaultHandshakeTimeout {
		t.Errorf("Shutdown took %v, as long as the handshake timeout", d)
	}
}

func TestNewIdleTimeoutKeepsAHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Config{}, &script{})
		nc := strange(t, s, certified(t).serverConfig())
		synctest.Wait()
		s.SetIdleTimeout(time.Minute)
		synctest.Wait()
		cl := &client{t: t, Conn: tls.Client(nc, certified(t).clientConfig())}
		cl.call("PING\r\n", "+PONG\r\n")
		start := time.Now()
		cl.expectEnd("")
		if d := time.Since(start); d != time.Minute {
			t.Errorf("the server closed the idle connection after %v, want 1 min", d)
		}
	})
}

func TestPlainTextOnTheTLSPortIsAnsweredInPlainText(t *testing.T) {
	log := new(logged)
	s := NewServer(Config{Logger: log.logger()}, &script{})
	addr, done := serveOn(t, s, certified(t).serverConfig())
	for range 3 {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		(&client{t: t, Conn: nc}).send(bulk("COMMAND", "DOCS"))
		(&client{t: t, Conn: nc}).expectEnd("-ERR This port speaks TLS only\r\n")
	}
	stopServer(t, s)
	<-done
	if n := log.count("TLS handshake failed"); n != 1 { // once a minute
		t.Errorf("the log has %d lines about the failed handshake, want 1:\n%s", n, log)
	}
}

func TestTLSOnThePlainPortIsAnsweredInPlainText(t *testing.T) {
	log := new(logged)
	s := NewServer(Config{Logger: log.logger()}, &script{})
	addr, done := serveTCP(t, s)
	for range 3 {
		_, err := tls.Dial("tcp", addr, certified(t).clientConfig())
		var header tls.RecordHeaderError
		if !errors.As(err, &header) || !strings.HasPrefix(string(header.RecordHeader[:]), "-ERR ") {
			t.Errorf("tls.Dial to the plain port returned %v, want a RecordHeaderError for an -ERR reply", err)
		}
	}
	stopServer(t, s)
	<-done
	if n := log.count("it uses TLS on the plain port"); n != 1 {
		t.Errorf("the log has %d lines about TLS on the plain port, want 1:\n%s", n, log)
	}
}

func TestPortProbeIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(logged)
		s := NewServer(Config{Logger: log.logger()}, &script{})
		strange(t, s, certified(t).serverConfig()).Close()
		synctest.Wait()
		if log.String() != "" {
			t.Errorf("the server logged a port probe: %s", log)
		}
	})
}

// logged collects the log lines of a server at level Info or above.
type logged struct {
	mu  sync.Mutex // protects buf
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logged) count(text string) int { return strings.Count(l.String(), text) }

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func TestCertificateName(t *testing.T) {
	who := certified(t)
	stranger := certs.NewAuthority(t, "another CA").Sign(t, certs.Leaf{Name: "root"})
	for _, c := range []struct {
		name    string
		ask     tls.ClientAuthType
		show    []certs.Signed
		refused bool
		want    string
	}{
		{"required and shown", tls.RequireAndVerifyClientCert, []certs.Signed{who.own}, false, "billing"},
		{"required and not shown", tls.RequireAndVerifyClientCert, nil, true, ""},
		{"required, of another authority", tls.RequireAndVerifyClientCert, []certs.Signed{stranger}, true, ""},
		{"optional and shown", tls.VerifyClientCertIfGiven, []certs.Signed{who.own}, false, "billing"},
		{"optional and not shown", tls.VerifyClientCertIfGiven, nil, false, ""},
		{"optional, of another authority", tls.VerifyClientCertIfGiven, []certs.Signed{stranger}, true, ""},
		{"without a name", tls.RequireAndVerifyClientCert, []certs.Signed{who.authority.Sign(t, certs.Leaf{})}, false, ""},
		{"not asked for", tls.NoClientCert, []certs.Signed{who.own}, false, ""},
		{"not verified", tls.RequireAnyClientCert, []certs.Signed{stranger}, false, ""},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(c.name+", "+tls.VersionName(version), func(t *testing.T) {
				h := &script{commands: map[string]func(*Conn, [][]byte){
					"NAME": func(c *Conn, _ [][]byte) { c.Reply().BulkString(c.CertificateName()) },
				}}
				s := NewServer(Config{}, h)
				addr, done := serveOn(t, s, who.mutualConfig(c.ask))
				// By default a client presents only a certificate that the server would accept.
				config := who.clientConfig()
				config.MaxVersion = version
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					if len(c.show) == 0 {
						return new(tls.Certificate), nil
					}
					return &c.show[0].Certificate, nil
				}
				nc, err := tls.Dial("tcp", addr, config)
				if err == nil {
					defer nc.Close()
					cl := &client{t: t, Conn: nc}
					cl.send("NAME\r\n")
					want := "$" + string('0'+rune(len(c.want))) + "\r\n" + c.want + "\r\n"
					got := make([]byte, len(want))
					if _, err = io.ReadFull(nc, got); err == nil && string(got) != want {
						t.Errorf("the reply with CertificateName is %q, want %q", got, want)
					}
				}
				alert := (*net.OpError)(nil) // a refused client must receive the alert, not a reset
				if (err != nil) != c.refused || c.refused && !(errors.As(err, &alert) && alert.Op == "remote error") {
					t.Errorf("the client gets error %v, want a TLS alert: %v", err, c.refused)
				}
				stopServer(t, s)
				<-done
				if c.refused && h.served.Load() != 0 {
					t.Error("the server executed a command of a refused client")
				}
			})
		}
	}
}

// torn splits a write into two pieces while tear is set. A call of rest sends the second piece.
type torn struct {
	net.Conn
	tear bool
	kept []byte
}

func (c *torn) Write(b []byte) (int, error) {
	n := len(b)
	if c.tear {
		c.kept, b = bytes.Clone(b[3:]), b[:3]
	}
	_, err := c.Conn.Write(b)
	return n, err
}

func (c *torn) rest(t *testing.T) {
	c.tear = false
	if _, err := c.Conn.Write(c.kept); err != nil {
		t.Error(err)
	}
}

func TestWakeWithinATLSRecordLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBlocking(0)
		s := NewServer(Config{}, h)
		pieces := &torn{Conn: strange(t, s, certified(t).serverConfig())}
		cl := &client{t: t, Conn: tls.Client(pieces, certified(t).clientConfig())}
		cl.send("WAIT job\r\n")
		wait := <-h.waits
		pieces.tear = true
		cl.send("PING\r\n")
		synctest.Wait()
		wait.Wake()
		cl.expect("+job woken\r\n")
		s.SetIdleTimeout(time.Hour) // interrupts Read between commands
		synctest.Wait()
		pieces.rest(t)
		cl.expect("+PONG\r\n")
	})
}

// A client that exits sends close_notify. A client whose process is killed does not.
func TestDisconnectOfABlockedTLSClientIsDetected(t *testing.T) {
	for name, leave := range map[string]func(*tls.Conn) error{
		"close_notify": func(nc *tls.Conn) error { return nc.Close() },
		"FIN":          func(nc *tls.Conn) error { return nc.NetConn().Close() },
		"RST": func(nc *tls.Conn) error {
			return errors.Join(nc.NetConn().(*net.TCPConn).SetLinger(0), nc.NetConn().Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newBlocking(0)
			s := NewServer(Config{}, h)
			addr, done := serveOn(t, s, certified(t).serverConfig())
			nc, err := tls.Dial("tcp", addr, certified(t).clientConfig())
			if err != nil {
				t.Fatal(err)
			}
			cl := &client{t: t, Conn: nc}
			cl.send("WAIT 1\r\n")
			(<-h.waits).Wake()
			<-h.ends
			cl.expect("+1 woken\r\n")
			cl.send("WAIT 2\r\n")
			<-h.waits
			start := time.Now()
			if err := leave(nc); err != nil {
				t.Fatal(err)
			}
			if why := <-h.ends; why != Gone {
				t.Errorf("Await returned %v, want Gone", why)
			}
			t.Logf("the disconnect was noticed after %v", time.Since(start))
			stopServer(t, s)
			<-done
		})
	}
}

// recorder records the bytes read from a connection.
type recorder struct {
	net.Conn
	all bytes.Buffer
}

func (c *recorder) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.all.Write(b[:n])
	return n, err
}

func TestConnectionEndsWithCloseNotify(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *Server, *client){
		"last command":   func(_ *testing.T, _ *Server, cl *client) { cl.send("QUIT\r\n") },
		"protocol error": func(_ *testing.T, _ *Server, cl *client) { cl.send("*a\r\n") },
		"idle":           func(_ *testing.T, s *Server, _ *client) { s.SetIdleTimeout(time.Minute) },
		"shutdown":       func(t *testing.T, s *Server, _ *client) { go s.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewServer(Config{}, &script{commands: map[string]func(*Conn, [][]byte){
					"QUIT": func(c *Conn, _ [][]byte) { c.CloseAfterReply() },
				}})
				read := &recorder{Conn: strange(t, s, certified(t).serverConfig())}
				config := certified(t).clientConfig()
				config.MaxVersion = tls.VersionTLS12 // TLS 1.3 would hide the type of a record
				cl := &client{t: t, Conn: tls.Client(read, config)}
				cl.call("PING\r\n", "+PONG\r\n")
				read.all.Reset()
				end(t, s, cl)
				if _, err := io.ReadAll(cl); err != nil {
					t.Error(err)
				}
				alert := byte(0)
				for b := read.all.Bytes(); len(b) > 5; b = b[5+int(b[3])<<8+int(b[4]):] {
					alert = b[0]
				}
				if alert != 21 {
					t.Errorf("the last record is of type %d, want an alert", alert)
				}
			})
		})
	}
}

// slow reads at most 100 bytes every nine seconds.
type slow struct{ net.Conn }

func (c slow) Read(b []byte) (int, error) {
	time.Sleep(9 * time.Second)
	return c.Conn.Read(b[:min(len(b), 100)])
}

// A record takes minutes to arrive, but the client reads some bytes within each WriteTimeout.
func TestSlowTLSReaderIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := strings.Repeat("x", 10_000)
		h := &script{commands: map[string]func(*Conn, [][]byte){
			"BIG": func(c *Conn, _ [][]byte) { c.Reply().Simple(big) },
		}}
		s := NewServer(Config{Limits: Limits{WriteTimeout: 10 * time.Second, HandshakeTimeout: time.Hour}}, h)
		cl := &client{t: t, Conn: tls.Client(slow{strange(t, s, certified(t).serverConfig())}, certified(t).clientConfig())}
		cl.call("BIG\r\n", "+"+big+"\r\n")
		cl.call("BIG\r\n", "+"+big+"\r\n")
	})
}

func TestStuckTLSClientBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan time.Time, 3)
		s := NewServer(Config{}, &script{commands: pubsub(), closed: func(*Conn) { closed <- time.Now() }})
		connect := func() *client {
			cl := &client{t: t, Conn: tls.Client(strange(t, s, certified(t).serverConfig()), certified(t).clientConfig())}
			cl.call("SUBSCRIBE a\r\n", confirmation("subscribe", "a", 1))
			return cl
		}
		start := time.Now()
		connect()
		s.Conns()[0].Close() // CLIENT KILL
		if d := (<-closed).Sub(start); d != 0 {
			t.Errorf("the connection ended %v after Close, want at once", d)
		}
		connect()
		s.Broker().Publish("a", "x") // a pusher blocks in its write
		synctest.Wait()
		s.Conns()[0].Close()
		if d := (<-closed).Sub(start); d != 0 {
			t.Errorf("the connection ended %v after Close during a push, want at once", d)
		}
		s.SetIdleTimeout(time.Minute)
		connect()
		s.Conns()[0].drain()
		if d := (<-closed).Sub(start); d != closeNotifyTimeout {
			t.Errorf("the connection ended %v after drain, want closeNotifyTimeout", d)
		}
	})
}
