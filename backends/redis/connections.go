package redis

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// connections knows which connections to Redis and Sentinels are stale. When one connection fails,
// go-redis closes only that one, although the others may lead to the same old node. Safe for
// concurrent use.
type connections struct {
	mu          sync.Mutex           // guards staleBefore
	staleBefore map[string]time.Time // by address; "" = all addresses
}

func newConnections() *connections {
	return &connections{staleBefore: make(map[string]time.Time)}
}

// dropBefore makes go-redis drop the connections to an address that were opened before an instant;
// "" = all addresses.
func (s *connections) dropBefore(addr string, before time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before.After(s.staleBefore[addr]) {
		s.staleBefore[addr] = before
	}
}

func (s *connections) isStale(c *connection) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.opened.Before(s.staleBefore[c.addr]) || c.opened.Before(s.staleBefore[""])
}

type connection struct {
	net.Conn
	set    *connections
	addr   string // the dialed address
	opened time.Time
	heard  atomic.Bool // the node has sent something
}

func (s *connections) add(conn net.Conn, addr string) net.Conn {
	return &connection{Conn: conn, set: s, addr: addr, opened: time.Now()}
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

// SyscallConn implements syscall.Conn. go-redis calls it to test an idle connection, and drops the
// connection after an error.
func (c *connection) SyscallConn() (syscall.RawConn, error) {
	if c.set.isStale(c) {
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

// dialer returns a dialer for go-redis that never returns an error. If a dial fails, it returns a
// connection whose first use fails with the same error. After several dial errors, go-redis would
// start a goroutine that dials once a second and outlives its client.
//
// secure returns the TLS configuration of a new connection, nil without TLS.
func dialer(timeout time.Duration, secure func() *tls.Config, all *connections) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		conn, err := redis.NewDialer(&redis.Options{DialTimeout: timeout, TLSConfig: secure()})(ctx, network, addr)
		if err != nil {
			pipe, _ := net.Pipe()
			return failedConn{pipe, err}, nil
		}
		return all.add(conn, addr), nil
	}
}

// failedConn is a connection that could not be made.
type failedConn struct {
	net.Conn // a pipe, which has the other methods
	err      error
}

func (c failedConn) Read([]byte) (int, error)  { return 0, c.err }
func (c failedConn) Write([]byte) (int, error) { return 0, c.err }

// endedContext is a context that has ended. With it, go-redis uses an open connection or loaded
// cluster state, but opens no connection.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
