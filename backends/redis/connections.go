package redis

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// connections is the set of open connections to Redis and Sentinels. When one connection fails,
// go-redis closes only that one. closeBefore closes the other connections to the node. Safe for
// concurrent use.
type connections struct {
	mu   sync.Mutex // guards open
	open map[*connection]struct{}
}

func newConnections() *connections {
	return &connections{open: make(map[*connection]struct{})}
}

type connection struct {
	net.Conn
	set    *connections
	addr   string // the dialed address
	opened time.Time
	closed atomic.Bool
	heard  atomic.Bool // the node has sent something
}

// errMaxClients is the error of a connection that the node has refused because it has too many.
var errMaxClients = errors.New("max number of clients reached: raise maxclients of Redis")

// Read implements net.Conn.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.heard.Swap(true) && bytes.HasPrefix(p[:n], []byte("-ERR max number of clients")) {
		return 0, errMaxClients
	}
	return n, err
}

// Write implements net.Conn. A node that refuses a connection says why, and closes it. Then the
// first write can fail, and the reason is still unread.
func (c *connection) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) && !c.heard.Load() {
		var unread [64]byte
		if _, refusal := c.Read(unread[:]); errors.Is(refusal, errMaxClients) {
			err = refusal
		}
	}
	return n, err
}

func (s *connections) add(conn net.Conn, addr string) net.Conn {
	c := &connection{Conn: conn, set: s, addr: addr, opened: time.Now()}
	s.mu.Lock()
	s.open[c] = struct{}{}
	s.mu.Unlock()
	return c
}

// closeBefore closes the connections to an address that were opened before an instant; "" = all
// addresses.
func (s *connections) closeBefore(addr string, before time.Time) {
	var list []*connection
	s.mu.Lock()
	for c := range s.open {
		if (addr == "" || c.addr == addr) && c.opened.Before(before) {
			delete(s.open, c)
			list = append(list, c)
		}
	}
	s.mu.Unlock()
	for _, c := range list {
		c.closed.Store(true)
		// tls.Conn.Close would first send an alert, and block if the peer does not read.
		if secure, ok := c.Conn.(*tls.Conn); ok {
			_ = secure.NetConn().Close()
		} else {
			_ = c.Conn.Close()
		}
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.set.mu.Lock()
	delete(c.set.open, c)
	c.set.mu.Unlock()
	c.closed.Store(true)
	return c.Conn.Close()
}

// SyscallConn implements syscall.Conn. go-redis calls it to test an idle connection. The error
// makes go-redis drop a connection that closeBefore has closed.
func (c *connection) SyscallConn() (syscall.RawConn, error) {
	if c.closed.Load() {
		return nil, net.ErrClosed
	}
	if plain, ok := c.Conn.(syscall.Conn); ok {
		return plain.SyscallConn()
	}
	return opaque{}, nil
}

// opaque stands for the socket of a TLS connection. On it, go-redis' test of an idle connection
// always succeeds, because the test cannot judge encrypted bytes.
type opaque struct{}

func (opaque) Control(func(uintptr)) error    { return nil }
func (opaque) Read(func(uintptr) bool) error  { return nil }
func (opaque) Write(func(uintptr) bool) error { return nil }
