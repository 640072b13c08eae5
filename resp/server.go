package resp

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Handler executes the commands of connections.
type Handler interface {
	// The server calls Opened once, on the connection's goroutine, before it reads the first
	// command. Over TLS it calls Opened after the handshake. If the handshake fails, it does not
	// call Opened, but it calls Closed.
	Opened(c *Conn)
	// Execute executes one command and writes exactly one reply to c.Reply(). SUBSCRIBE and similar
	// commands have one reply for each channel. The server calls Execute on the connection's
	// goroutine. args is never empty, and is valid only during the call. If the reply shows a
	// change that may not be durable yet, Execute calls c.ReplyAfter.
	Execute(c *Conn, args [][]byte)
	// The server calls Closed once, on the connection's goroutine, after the last Execute. By then
	// the executed commands are committed, unless the commit failed. The connection is closed, its
	// Context has ended, and its subscriptions are removed. Closed may call ReplyAfter and Commit.
	Closed(c *Conn)
}

// rejectTimeout bounds how long the rejection of a client delays the next accept.
const rejectTimeout = 100 * time.Millisecond

// Server serves connections. Its methods are safe for concurrent use.
type Server struct {
	cfg     Config // with defaults; does not change
	handler Handler

	maxClients  atomic.Int64
	idleTimeout atomic.Int64 // time.Duration
	blocked     atomic.Int64
	counters

	warned [len(clientFaults)]onceAMinute // limits the warnings of each fault

	mu        sync.Mutex // protects this group
	conns     map[uint64]*Conn
	lastID    uint64
	listeners []net.Listener
	closing   bool
	ended     sync.Cond // its L is mu; signaled when a connection has ended

	suspended atomic.Bool // written with mu held

	computing chan struct{} // its values are the slots of Conn.Yield
	pushers   pushers

	watch    sync.Once // starts cutVanished
	watching sync.WaitGroup

	stop    chan struct{} // closed when Shutdown begins
	drained chan struct{} // closed when Shutdown has begun and no connection is left
}

// NewServer returns a server without listeners.
func NewServer(cfg Config, h Handler) *Server {
	cfg = cfg.withDefaults()
	s := &Server{
		cfg:       cfg,
		handler:   h,
		conns:     make(map[uint64]*Conn),
		computing: make(chan struct{}, runtime.GOMAXPROCS(0)),
		pushers:   newPushers(),
		stop:      make(chan struct{}),
		drained:   make(chan struct{}),
	}
	s.ended.L = &s.mu
	s.SetMaxClients(cfg.MaxClients)
	s.SetIdleTimeout(cfg.IdleTimeout)
	return s
}

// ServeConn serves one connection, closes it, and returns when it has ended.
func (s *Server) ServeConn(nc net.Conn) { s.serveConn(nc, nil) }

func (s *Server) serveConn(nc net.Conn, config *tls.Config) {
	if c := s.admit(nc, config); c != nil {
		c.run()
	}
}

// admit adds nc to the connections of the server. The connection uses TLS if config is not nil. If
// the server is full, suspended or shutting down, admit closes nc and returns nil.
func (s *Server) admit(nc net.Conn, config *tls.Config) *Conn {
	c := newConn(s, nc)
	if config != nil {
		c.speakTLS(config)
	}
	s.received.Add(1)
	added, full := s.add(c, int(s.maxClients.Load()))
	if added {
		return c
	}
	if full {
		s.rejected.Add(1)
		if config == nil { // over TLS, a client could read the error only after a handshake
			reject(nc)
		}
	}
	c.Close()
	return nil
}

// add adds c to the connections, unless the server is full, suspended or shutting down. The server is
// full if it has at least as many connections as limit.
func (s *Server) add(c *Conn, limit int) (added, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	full = len(s.conns) >= limit
	if full || s.closing || s.suspended.Load() {
		return false, full
	}
	s.lastID++
	c.id = s.lastID
	s.conns[c.id] = c
	return true, false
}

// reject sends the error to a client beyond MaxClients. It gives up after rejectTimeout.
func reject(nc net.Conn) {
	if nc.SetWriteDeadline(time.Now().Add(rejectTimeout)) == nil {
		_, _ = nc.Write([]byte("-ERR max number of clients reached\r\n"))
	}
}

func (s *Server) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c.id)
	if s.closing && len(s.conns) == 0 {
		close(s.drained)
	}
	s.ended.Broadcast()
}

// Suspend closes all connections, drops their unsent replies, and returns when they have ended. For
// these connections ServerStopping is true. Until Resume, the server closes each new connection.
func (s *Server) Suspend() {
	s.mu.Lock()
	s.suspended.Store(true)
	s.mu.Unlock()
	for _, c := range s.Conns() {
		c.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.conns) > 0 {
		s.ended.Wait()
	}
}

// Resume makes the server accept connections after Suspend.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspended.Store(false)
}

// Shutdown ends the server. It stops accepting, wakes blocked commands with ShuttingDown, finishes
// and answers the commands that were read, and sends the queued pushes. It returns nil when every
// connection has ended. If ctx ends first, Shutdown closes the remaining connections and returns an
// error that wraps ctx.Err(). To wait for the handlers that still run, call Shutdown again.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.closing {
		s.closing = true
		close(s.stop)
		if len(s.conns) == 0 {
			close(s.drained)
		}
	}
	listeners := s.listeners
	s.listeners = nil
	s.mu.Unlock()

	for _, ln := range listeners {
		ln.Close() // makes its Serve return
	}
	s.watching.Wait()
	for _, c := range s.Conns() {
		c.drain()
	}
	select {
	case <-s.drained:
		return nil
	case <-ctx.Done():
	}
	left := s.Conns()
	for _, c := range left {
		c.Close()
	}
	return fmt.Errorf("closed %d connections: %w", len(left), ctx.Err())
}

// Broker returns the server's pub/sub.
func (s *Server) Broker() *Broker { return s.cfg.Broker }

// Conn returns the connection with this id, nil if there is none.
func (s *Server) Conn(id uint64) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[id]
}

// Conns returns the connections, sorted by id.
func (s *Server) Conns() []*Conn {
	s.mu.Lock()
	conns := slices.Collect(maps.Values(s.conns))
	s.mu.Unlock()
	slices.SortFunc(conns, func(a, b *Conn) int { return cmp.Compare(a.id, b.id) })
	return conns
}

// MaxClients returns the maximum number of connections.
func (s *Server) MaxClients() int { return int(s.maxClients.Load()) }

// SetMaxClients sets the maximum number of connections. Open connections stay.
func (s *Server) SetMaxClients(n int) { s.maxClients.Store(int64(n)) }

// IdleTimeout returns how long a client may be silent; 0 = for ever.
func (s *Server) IdleTimeout() time.Duration { return time.Duration(s.idleTimeout.Load()) }

// SetIdleTimeout sets how long a client may be silent; 0 = for ever. The timeout applies to open
// connections too. It does not apply to blocked clients, clients that wait for pushes, and
// connections in use (Config.InUse).
func (s *Server) SetIdleTimeout(d time.Duration) {
	s.idleTimeout.Store(int64(d))
	for _, c := range s.Conns() {
		c.interrupt()
	}
}
