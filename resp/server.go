package resp

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp/poll"
)

// Handler executes what connections read.
type Handler interface {
	// Opened is called once, on the connection's goroutine, before anything is read; of one
	// that speaks TLS after its handshake.
	Opened(c *Conn)
	// Serve executes one command and writes exactly one reply to c.Reply(), or one
	// for each channel of a SUBSCRIBE and its like. args is never empty, and valid
	// only during the call. It is called on the connection's own goroutine; an
	// inline command arrives the same way. If the reply rests on a change that may not be
	// durable yet, Serve says so by c.RestOn.
	Serve(c *Conn, args [][]byte)
	// Closed is called once, on the connection's goroutine, after the last Serve, when what was
	// served is settled, the connection is closed, its Context has ended and its subscriptions
	// are gone. It may call RestOn and Commit. c.Graceful tells whether the server is shutting
	// down.
	Closed(c *Conn)
}

// rejectTimeout bounds how long a client too many keeps the acceptor busy.
const rejectTimeout = 100 * time.Millisecond

// Server serves connections. Its methods may be called concurrently.
type Server struct {
	handler     Handler
	committer   simba.Committer
	settled     func(took time.Duration)
	limits      Limits
	requireAuth func() bool
	inUse       func(*Conn) bool
	log         *slog.Logger
	broker      *Broker
	polls       bool // Config.Poll

	maxClients  atomic.Int64
	idleTimeout atomic.Int64 // time.Duration
	blocked     atomic.Int64
	counters
	crossProtocol onceAMinute
	flooded       onceAMinute
	handshakes    onceAMinute
	foreignTLS    onceAMinute
	anonymous     onceAMinute

	mu        sync.Mutex // protects this group
	conns     map[uint64]*Conn
	lastID    uint64
	listeners map[net.Listener]struct{}
	closing   bool
	poller    *poll.Poller // nil = none, yet or any more

	pushers pushers

	stop    chan struct{} // closed when Shutdown begins
	drained chan struct{} // closed when, after that, the last connection has ended
}

// NewServer returns a server that serves nobody yet.
func NewServer(cfg Config, h Handler) *Server {
	cfg = cfg.withDefaults()
	s := &Server{
		handler:     h,
		committer:   cfg.Committer,
		settled:     cfg.CommitWaited,
		limits:      cfg.Limits,
		requireAuth: cfg.RequireAuth,
		inUse:       cfg.InUse,
		log:         cfg.Logger,
		broker:      cfg.Broker,
		polls:       cfg.Poll,
		conns:       make(map[uint64]*Conn),
		listeners:   make(map[net.Listener]struct{}),
		stop:        make(chan struct{}),
		drained:     make(chan struct{}),
	}
	s.SetMaxClients(cfg.MaxClients)
	s.SetIdleTimeout(cfg.IdleTimeout)
	return s
}

// ServeConn serves one connection and returns when it has ended. It closes nc.
func (s *Server) ServeConn(nc net.Conn) { s.serveConn(nc, nil) }

func (s *Server) serveConn(nc net.Conn, config *tls.Config) {
	if c := s.admit(nc, config); c != nil {
		c.serve()
	}
}

// admit makes nc a connection of the server, one that speaks TLS unless config is
// nil, or closes it and returns nil.
func (s *Server) admit(nc net.Conn, config *tls.Config) *Conn {
	c := newConn(s, nc)
	if config != nil {
		c.speakTLS(config)
	}
	s.received.Add(1)

	s.mu.Lock()
	full := int64(len(s.conns)) >= s.maxClients.Load()
	if !full && !s.closing {
		s.lastID++
		c.id = s.lastID
		s.conns[c.id] = c
		s.mu.Unlock()
		return c
	}
	s.mu.Unlock()

	if full {
		s.rejected.Add(1)
		if config == nil { // else it would take a handshake, which is what there is no room for
			reject(nc)
		}
	}
	c.Close()
	return nil
}

// reject tells a client that it is one too many, if it listens.
func reject(nc net.Conn) {
	if nc.SetWriteDeadline(time.Now().Add(rejectTimeout)) == nil {
		_, _ = nc.Write([]byte("-ERR max number of clients reached\r\n"))
	}
}

// remove forgets a connection; its goroutine does nothing after that.
func (s *Server) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c.id)
	if s.closing && len(s.conns) == 0 {
		close(s.drained)
	}
}

// Shutdown ends the server: it accepts no more, wakes blocked commands with
// ShuttingDown, lets the commands that were read finish and be answered, sends what
// is queued for subscribers, and returns nil when every connection has ended. When
// ctx ends first, it cuts the connections that are left and returns ctx's error
// without waiting for their handlers. A later call waits for them again.
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

	for ln := range listeners {
		ln.Close() // makes its Serve return; there is nobody to tell if it fails
	}
	for _, c := range s.Conns() {
		c.drain()
	}
	select {
	case <-s.drained:
		s.endPoller()
		return nil
	case <-ctx.Done():
	}
	left := s.Conns()
	for _, c := range left {
		c.Close()
	}
	return fmt.Errorf("cut %d connections: %w", len(left), ctx.Err())
}

// Broker is the server's pub/sub.
func (s *Server) Broker() *Broker { return s.broker }

// Conn returns the connection with that id, nil if there is none.
func (s *Server) Conn(id uint64) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[id]
}

// Conns lists the connections by id.
func (s *Server) Conns() []*Conn {
	s.mu.Lock()
	conns := make([]*Conn, 0, len(s.conns))
	for _, c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	slices.SortFunc(conns, func(a, b *Conn) int { return cmp.Compare(a.id, b.id) })
	return conns
}

// MaxClients is how many connections there may be.
func (s *Server) MaxClients() int { return int(s.maxClients.Load()) }

// SetMaxClients sets how many connections there may be; those that are stay.
func (s *Server) SetMaxClients(n int) { s.maxClients.Store(int64(n)) }

// IdleTimeout is how long a client may be silent; 0 = for ever.
func (s *Server) IdleTimeout() time.Duration { return time.Duration(s.idleTimeout.Load()) }

// SetIdleTimeout sets how long a client may be silent, also for those connected
// now; 0 = for ever. A client that is blocked, that listens, or whose connection is in
// use (Config.InUse) may be silent anyway.
func (s *Server) SetIdleTimeout(d time.Duration) {
	s.idleTimeout.Store(int64(d))
	for _, c := range s.Conns() {
		c.reconsider()
	}
}
