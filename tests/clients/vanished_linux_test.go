package clients

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// host is a machine with one connection, which can vanish.
type host struct {
	t      *testing.T
	tcp    *net.TCPConn
	stream io.ReadWriter // tcp, or TLS on it
}

// connectHost connects to the server. The connection has no keep-alive probes, and a receive buffer
// of the given size; 0 = the usual size.
func connectHost(t *testing.T, addr string, buffer int) *host {
	t.Helper()
	d := net.Dialer{KeepAlive: -1}
	nc, err := d.Dial("tcp", addr)
	simbatest.Must(t, err)
	t.Cleanup(func() { nc.Close() })
	h := &host{t, nc.(*net.TCPConn), nc}
	if buffer > 0 {
		simbatest.Must(t, h.tcp.SetReadBuffer(buffer))
	}
	return h
}

// vanish makes the kernel drop all packets to the host, so that it acknowledges nothing. First it
// waits until the server has acknowledged what the host has sent, so that the host sends nothing
// more.
func (h *host) vanish() {
	h.t.Helper()
	raw, err := h.tcp.SyscallConn()
	simbatest.Must(h.t, err)
	drop := unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	control := raw.Control(func(fd uintptr) {
		for unacked := uint32(1); unacked > 0 && err == nil; {
			var info *unix.TCPInfo
			if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				unacked = info.Unacked
			}
		}
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &drop)
	})
	if control != nil || err != nil {
		h.t.Fatal("cannot drop packets:", control, err)
	}
}

// A message that is not acknowledged ends the keep-alive probes. The kernel retransmits it for 15
// minutes, longer than this test may run.
func TestAVanishedHostLosesItsSessionLeasesAlthoughAMessageToItIsUnacknowledged(t *testing.T) {
	for name, prepare := range map[string]func(s *tlsServer, h *host) (message func()){
		"a notice": func(s *tlsServer, h *host) func() {
			h.asks("SUBSCRIBE simba:{other}", "subscribe")
			return func() { s.acquires("other", "somebody") }
		},
		"a grant": func(s *tlsServer, h *host) func() {
			s.acquires("wanted", "owner")
			h.send("SIMBA.ACQUIRE wanted a 600000 WAIT 0\r\n")
			s.blocked(1)
			return func() {
				if n, err := s.client().Do(s.t.Context(), "SIMBA.RELEASE", "wanted", "owner").Int(); n != 1 || err != nil {
					s.t.Fatalf("RELEASE returns %d, %v, want 1", n, err)
				}
			}
		},
	} {
		for _, transport := range []string{"plain", "TLS"} {
			t.Run(name+" over "+transport, func(t *testing.T) {
				t.Parallel()
				plain := simbatest.New(t).Addr
				s := startTLS(t, "--addr", plain)
				addr := map[string]string{"plain": plain, "TLS": s.addr}[transport]
				h := connectHost(t, addr, 0)
				if transport == "TLS" {
					h.stream = tls.Client(h.tcp, &tls.Config{RootCAs: s.authority.Pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12})
				}
				h.asks("HELLO 3", "proto")
				h.asks("SIMBA.ACQUIRE job a 3600000 SESSION", "acquired")
				message := prepare(s, h)
				h.vanish()
				message()
				began := time.Now()
				s.acquires("job", "b")
				t.Logf("the mutex is free after %v", time.Since(began))
			})
		}
	}
}

// acquires waits until the contender owns the mutex.
func (s *tlsServer) acquires(mutex, contender string) {
	s.t.Helper()
	reply, err := s.client().Do(s.t.Context(), "SIMBA.ACQUIRE", mutex, contender, 600_000, "WAIT", simbatest.Patience.Milliseconds()).Result()
	if err != nil || !strings.Contains(fmt.Sprint(reply), "acquired") {
		s.t.Fatalf("ACQUIRE of %s by %s: %v, %v; want acquired", mutex, contender, reply, err)
	}
}

// Twenty seconds are more than a host without acknowledgments gets. The stalled clients have small
// receive buffers, which are soon full, and the rest of the reply waits in the server's send
// buffer.
func TestAClientThatLivesAndReadsNothingIsNotTakenForVanished(t *testing.T) {
	const still = 20 * time.Second
	t.Run("a backup into a pipe", func(t *testing.T) {
		t.Parallel()
		s := simbatest.Start(t)
		data := make([]byte, 10_000)
		_, _ = rand.Read(data)
		for i := range 15 {
			if _, err := simbatest.Conn(t, s).Do("SET", fmt.Sprint("data", i), data); err != nil {
				t.Fatal(err)
			}
		}
		h := connectHost(t, s.Addr, 32<<10)
		if _, err := redis.NewConn(h.tcp, 0, 0).Do("SIMBA.BACKUP", "BEGIN"); err != nil {
			t.Fatal(err)
		}
		h.send("*3\r\n$12\r\nSIMBA.BACKUP\r\n$4\r\nREAD\r\n$1\r\n0\r\n")
		time.Sleep(still)
		if part, err := redis.Bytes(redis.NewConn(h.tcp, 0, 0).Receive()); err != nil || bytes.Count(part, data) != 15 {
			t.Errorf("after %v the client reads %d bytes, %v; want the backup", still, len(part), err)
		}
	})
	t.Run("a probe over HTTP", func(t *testing.T) {
		t.Parallel()
		addr := simbatest.New(t).Addr
		simbatest.Start(t, "--http-addr", addr)
		h := connectHost(t, addr, 4<<10)
		const requests = 1000
		h.send(strings.Repeat("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", requests-1))
		h.send("GET /livez HTTP/1.0\r\nHost: x\r\n\r\n")
		time.Sleep(still)
		text, err := io.ReadAll(h.tcp)
		if n := bytes.Count(text, []byte("200 OK")); err != nil || n != requests {
			t.Errorf("after %v the client reads %d replies, %v; want %d", still, n, err, requests)
		}
	})
}

func (h *host) send(text string) {
	h.t.Helper()
	if _, err := io.WriteString(h.stream, text); err != nil {
		h.t.Fatal(err)
	}
}

// asks sends a command, whose reply must have a text.
func (h *host) asks(command, want string) {
	h.t.Helper()
	h.send(command + "\r\n")
	reply := make([]byte, 32<<10)
	if n, err := h.stream.Read(reply); err != nil || !bytes.Contains(reply[:n], []byte(want)) {
		h.t.Fatalf("%s: %q, %v; want a reply with %q", command, reply[:n], err, want)
	}
}
