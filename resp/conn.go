package resp

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Conn is a client's connection. The Handler may use the methods while the server calls it for this
// connection. Other code may use only the methods that any goroutine may call, as their comments
// say. After the connection has ended, the methods have no effect.
type Conn struct {
	server  *Server
	wire    wire
	stream  io.ReadWriter // carries commands and replies: &wire, or tls
	tls     *tls.Conn     // nil = no TLS
	id      uint64
	created time.Time
	unix    string // the path of the unix socket; "" = not a unix socket
	remote  string
	local   string
	ctx     context.Context // see Context
	cancel  context.CancelFunc

	// Only the connection's goroutine uses this group. Durations count from created.
	in           *reader
	reply        Writer
	replyAfter   simba.Seq     // the replies of this batch wait until this Seq is durable
	mustCommit   bool          // ReplyAfter was called in this batch
	batches      uint64        // number of completed batches
	replyStart   int           // where the reply to the current command begins in reply.buf
	holdsPushes  bool          // the current command holds pushes back, see hold
	closing      bool          // the connection ends after the replies are sent
	err          error         // why the connection ends; the first reason counts
	checksBuffer bool          // rearm has set the read deadline in time to check a grown buffer
	awaitsPushes bool          // set by SetAwaitsPushes
	inUseAt      time.Duration // when Config.InUse last returned true
	unauthSince  time.Duration // when the client ceased to be authenticated
	runningSince time.Duration // when it last waited or let other connections run
	computes     bool          // the connection holds a slot of Server.computing
	deliveries   int           // sum of AddReceivers since the last wait for the pushers

	lastActive    atomic.Int64 // nanoseconds since created
	authenticated atomic.Bool
	closed        atomic.Bool
	buffers       atomic.Uint64 // used and free bytes in one word; see QueryBuffered
	state         atomic.Pointer[any]
	subscriptions [kinds]atomic.Int32
	name          atomic.Pointer[string]

	certificateName atomic.Pointer[string]

	readMu      sync.Mutex // protects this group, the reasons to interrupt Read
	wait        *Wait      // the blocked command
	unblock     Wakeup     // set by Unblock
	draining    bool       // the server is shutting down
	handshaking bool       // during the TLS handshake

	wmu sync.Mutex // serializes writes of whole frames

	push   pushQueue
	topics [kinds]map[string]*topic // the subscriptions; protected by Broker.mu
}

func newConn(s *Server, nc net.Conn) *Conn {
	c := &Conn{
		server:  s,
		wire:    newWire(nc, s.limits.WriteTimeout),
		created: time.Now(),
		remote:  nc.RemoteAddr().String(),
		local:   nc.LocalAddr().String(),
		in:      newReader(s.limits),
	}
	if at, ok := nc.LocalAddr().(*net.UnixAddr); ok {
		c.unix, c.remote = at.Name, at.Name+":0"
		c.local = c.remote
	}
	c.stream = &c.wire
	c.push.init()
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// ID returns a number that no other connection of the server has. Later connections have larger
// ids. Any goroutine may call it.
func (c *Conn) ID() uint64 { return c.id }

// UnixSocket returns the path of the unix socket that the client connected to. It is "" for other
// connections. Any goroutine may call it.
func (c *Conn) UnixSocket() string { return c.unix }

// RemoteAddr returns the client's address. Clients of a unix socket all have "path:0", as in Redis.
// Any goroutine may call it.
func (c *Conn) RemoteAddr() string { return c.remote }

// LocalAddr returns the address that the client connected to. Any goroutine may call it.
func (c *Conn) LocalAddr() string { return c.local }

// Created returns when the connection was accepted. Any goroutine may call it.
func (c *Conn) Created() time.Time { return c.created }

// LastActive returns when the server last read from the client, sent a push to it, or ended the
// wait of its blocked command. Any goroutine may call it.
func (c *Conn) LastActive() time.Time {
	return c.created.Add(time.Duration(c.lastActive.Load()))
}

func (c *Conn) touch() { c.lastActive.Store(int64(c.age())) }

func (c *Conn) age() time.Duration { return time.Since(c.created) }

// Context returns a context that ends when the connection is closed. The server notices a
// disconnect between commands, and while a command is blocked. Any goroutine may call it.
func (c *Conn) Context() context.Context { return c.ctx }

// Reply returns the writer of replies. The server sends the replies at the end of the batch, or at
// Flush. The handler must complete a reply before it calls Flush or Await.
func (c *Conn) Reply() *Writer { return &c.reply }

// Proto returns the version of RESP that the client chose, 2 or 3. Any goroutine may call it.
func (c *Conn) Proto() int { return c.push.proto() }

// SetProto sets the version of RESP, 2 or 3, for later replies and pushes.
func (c *Conn) SetProto(version int) {
	c.hold()
	c.reply.SetProto(version)
	c.push.setProto(version)
}

// Authenticated reports whether the client has authenticated. Any goroutine may call it.
func (c *Conn) Authenticated() bool { return c.authenticated.Load() }

// SetAuthenticated records whether the client has authenticated. While the client has not
// authenticated and Config.RequireAuth returns true, the limits before authentication apply. A
// change from true to false restarts AuthTimeout.
func (c *Conn) SetAuthenticated(ok bool) {
	if was := c.authenticated.Swap(ok); was && !ok {
		c.unauthSince = time.Since(c.created)
		c.interrupt()
	}
}

// unauthenticated reports whether the limits before authentication apply.
func (c *Conn) unauthenticated() bool {
	return !c.authenticated.Load() && c.server.requireAuth()
}

// authDeadline returns when AuthTimeout ends. The zero time means that AuthTimeout does not apply.
func (c *Conn) authDeadline() time.Time {
	if !c.unauthenticated() {
		return time.Time{}
	}
	return c.created.Add(c.unauthSince + c.server.limits.AuthTimeout)
}

// overdue reports whether AuthTimeout has passed.
func (c *Conn) overdue() bool {
	by := c.authDeadline()
	return !by.IsZero() && !time.Now().Before(by)
}

// Name returns the client's name (CLIENT SETNAME). Any goroutine may call it.
func (c *Conn) Name() string {
	if name := c.name.Load(); name != nil {
		return *name
	}
	return ""
}

// SetName sets the client's name.
func (c *Conn) SetName(name string) { c.name.Store(&name) }

// State returns the value of the last SetState, nil at first. Any goroutine may call it, so the
// handler must protect the contents of the value.
func (c *Conn) State() any {
	if s := c.state.Load(); s != nil {
		return *s
	}
	return nil
}

// SetState stores the handler's state of this connection.
func (c *Conn) SetState(state any) { c.state.Store(&state) }

// QueryBuffered returns the numbers of used and free bytes in the input buffer, as of the last
// read. Any goroutine may call it.
func (c *Conn) QueryBuffered() (used, free int) {
	b := c.buffers.Load()
	return int(b >> 32), int(b & (1<<32 - 1))
}

func (c *Conn) noteBuffers() {
	used := c.in.buffered()
	c.buffers.Store(uint64(used)<<32 | uint64(len(c.in.buf)-used))
}

// CloseAfterReply closes the connection after the server has sent the reply to this command.
func (c *Conn) CloseAfterReply() { c.closing = true }

// Close closes the connection at once and drops unsent bytes. It does not wait for the connection's
// goroutine. Any goroutine may call it.
func (c *Conn) Close() {
	if c.closed.CompareAndSwap(false, true) {
		c.cancel()
		c.wire.Close()
	}
}

// ServerStopping reports whether the server is shutting down. Handler.Closed uses it to distinguish
// a shutdown from a disconnect. Any goroutine may call it.
func (c *Conn) ServerStopping() bool {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	return c.draining
}
