package monitor

import (
	"context"
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
// oldest connection without an authorized request. So clients without a login keep nobody else out,
// even if they are silent or slow. There is one exception: maxConns new connections can displace a
// client during its login. conns is safe for concurrent use.
type conns struct {
	mu   sync.Mutex // protects open
	open []conn     // from old to new
}

type conn struct {
	net.Conn
	authorized bool // it serves a request whose sender has the right to make it
}

// changed is an http.Server.ConnState.
func (l *conns) changed(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if over := l.add(c); over != nil {
			cut(over)
		}
	case http.StateIdle: // the reply was sent
		l.setAuthorized(c, false)
	case http.StateClosed:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open = slices.DeleteFunc(l.open, func(o conn) bool { return o.Conn == c })
	}
}

// add adds a connection. It returns the connection to close, or nil.
func (l *conns) add(c net.Conn) (over net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, conn{Conn: c})
	if len(l.open) <= maxConns {
		return nil
	}
	i := slices.IndexFunc(l.open, func(o conn) bool { return !o.authorized }) // c or an older one
	over = l.open[i].Conn
	l.open = slices.Delete(l.open, i, i+1)
	return over
}

// cut closes a connection. Close of a TLS connection would wait for the client.
func cut(c net.Conn) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	c.Close()
}

// connKey is the context key for the connection of a request.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// authorize marks the connection of a request as authorized, until the reply has been sent.
func (l *conns) authorize(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		l.setAuthorized(c, true)
	}
}

func (l *conns) setAuthorized(c net.Conn, authorized bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A connection that add has closed is not in the list.
	if i := slices.IndexFunc(l.open, func(o conn) bool { return o.Conn == c }); i >= 0 {
		l.open[i].authorized = authorized
	}
}
