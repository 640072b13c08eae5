package monitor

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Without the check, the connection would stay open for two minutes. The client repeats its request
// for a while, because the server's acknowledgment is lost too.
func TestAVanishedHostLosesItsConnectionAlthoughItsReplyIsUnacknowledged(t *testing.T) {
	s := New(Config{Logger: quiet})
	addr := serve(t, s)
	dialer := net.Dialer{KeepAlive: -1}
	c, err := dialer.Dial("tcp", addr)
	must(t, err)
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	must(t, err)
	drop := unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	control := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &drop)
	})
	if control != nil || err != nil {
		t.Fatal("cannot drop packets:", control, err)
	}
	began := time.Now()
	if _, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	isOpen := func() bool {
		s.conns.mu.Lock()
		defer s.conns.mu.Unlock()
		return slices.ContainsFunc(s.conns.open, func(o conn) bool { return o.RemoteAddr().String() == c.LocalAddr().String() })
	}
	for seen := false; !seen || isOpen(); time.Sleep(10 * time.Millisecond) {
		seen = seen || isOpen()
		if time.Since(began) > idleTimeout-20*time.Second {
			t.Fatalf("the connection is open after %v", time.Since(began))
		}
	}
	t.Logf("the server has closed the connection after %v", time.Since(began))
}
