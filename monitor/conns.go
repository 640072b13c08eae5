package monitor

import (
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
)

// maxConns bounds the open connections, so that the rest of the server never lacks file
// descriptors.
const maxConns = 64

// conns are the open connections. When there are more than maxConns, the method changed closes the
// oldest one. So clients that are silent or slow keep nobody else out. conns is safe for concurrent
// use.
type conns struct {
	mu   sync.Mutex // protects open
	open []net.Conn // from old to new
}

// changed is an http.Server.ConnState.
func (l *conns) changed(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if over := l.add(c); over != nil {
			cut(over)
		}
	case http.StateClosed:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open = slices.DeleteFunc(l.open, func(o net.Conn) bool { return o == c })
	}
}

// add adds a connection. It returns the connection to close, or nil.
func (l *conns) add(c net.Conn) (over net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, c)
	if len(l.open) > maxConns {
		over = l.open[0]
		l.open = slices.Delete(l.open, 0, 1)
	}
	return over
}

// cut closes a connection. Close of a TLS connection would wait for the client.
func cut(c net.Conn) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	c.Close()
}
