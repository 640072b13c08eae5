package monitor

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/tests/need"
)

// connect opens a connection and sends text.
func connect(t *testing.T, addr, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// ask sends a request to /livez and reads the reply.
func ask(c net.Conn) error {
	_, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	if err != nil {
		return err
	}
	reply, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	return reply.Body.Close()
}

// isClosed reports whether the server has closed the connection.
func isClosed(t *testing.T, c net.Conn) bool {
	t.Helper()
	must(t, c.SetReadDeadline(time.Now().Add(need.Hang)))
	_, err := io.Copy(io.Discard, c)
	return err == nil || errors.Is(err, syscall.ECONNRESET)
}

// protected serves HTTP for a server whose default user has a password.
func protected(t *testing.T, src Sources) (addr string) {
	return serveUsers(t, &src, access.Options{Password: "secret"})
}

func serveUsers(t *testing.T, src *Sources, o access.Options) (addr string) {
	users, err := access.Open(commands.Catalog(), o)
	must(t, err)
	src.Commands = commands.New(commands.Config{Backend: src.Backend, Users: users, Logger: quiet})
	src.Commands.Attach(src.Server)
	t.Cleanup(src.Commands.Close)
	s := New(Config{Logger: quiet})
	addr = serve(t, s)
	must(t, s.Open(*src))
	return addr
}

func scrape(addr string) (status int, err error) {
	r, err := http.NewRequest(http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	r.SetBasicAuth("default", "secret")
	reply, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	_, err = io.Copy(io.Discard, reply.Body)
	return reply.StatusCode, err
}

func TestClientsWithoutALoginKeepNobodyOut(t *testing.T) {
	for name, text := range map[string]string{
		"silent": "",
		"slow":   "GET /readyz HTTP/1.1\r\nHost",
		"idle":   "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
		// After three wrong passwords, the server delays each further reply longer.
		"guessing": "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Basic ZGVmYXVsdDpndWVzcw==\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			addr := protected(t, sources(t))
			for range 2 * maxConns {
				connect(t, addr, text)
			}
			if status, body := get(t, "http://"+addr+"/readyz"); status != http.StatusOK {
				t.Errorf("/readyz replies %d %s, want 200", status, body)
			}
			if status, err := scrape(addr); status != http.StatusOK {
				t.Errorf("/metrics replies %d, %v, want 200", status, err)
			}
		})
	}
}

func TestBeyondTheLimitTheOldestConnectionIsClosed(t *testing.T) {
	addr := serve(t, New(Config{Logger: quiet}))
	var conns []net.Conn
	for range maxConns + 1 {
		c := connect(t, addr, "")
		if err := ask(c); err != nil { // the reply shows that the server has accepted c
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	if !isClosed(t, conns[0]) {
		t.Error("the server did not close the oldest connection")
	}
	for i, c := range conns[1:] {
		if err := ask(c); err != nil {
			t.Errorf("the server closed connection %d: %v", i+1, err)
		}
	}
}

func TestAnAuthorizedRequestIsNotCutOff(t *testing.T) {
	src := sources(t)
	b := &slowBackend{Backend: src.Backend, reply: make(chan struct{})}
	src.Backend = b
	addr := protected(t, src)
	done := make(chan error, 1)
	go func() {
		status, err := scrape(addr)
		if err == nil && status != http.StatusOK {
			err = errors.New(http.StatusText(status))
		}
		done <- err
	}()
	for b.asked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	for range 2 * maxConns {
		must(t, ask(connect(t, addr, "")))
	}
	close(b.reply)
	if err := <-done; err != nil {
		t.Errorf("the authorized request to /metrics: %v; want no error", err)
	}
}

func TestWithOnlyAuthorizedRequestsTheNewestConnectionIsClosed(t *testing.T) {
	var l conns
	for range maxConns {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		if over := l.add(near); over != nil {
			t.Fatal("add returned a connection to close below the limit")
		}
	}
	for i := range l.open {
		l.open[i].authorized = true
	}
	near, far := net.Pipe()
	defer far.Close()
	if over := l.add(near); over != near || len(l.open) != maxConns {
		t.Errorf("add returned %v to close and left %d; want the new connection, and %d left", over, len(l.open), maxConns)
	}
}
