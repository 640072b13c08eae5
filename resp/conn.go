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
	"github.com/simba-resp/simba-resp/resp/poll"
)

// ReplyMode says whether a client wants replies (CLIENT REPLY).
type ReplyMode uint8

// The modes.
const (
	ReplyOn       ReplyMode = iota
	ReplyOff                // none, that of the command which says so included
	ReplySkipNext           // none for this command and the next

	replySkip // the next one is being executed
)

// Conn is the connection of a client. A Handler is given it with each command.
//
// Methods are for the connection's own goroutine, that is for the Handler while it
// is called with this Conn, unless their comment says that any goroutine may call
// them; those work, to no effect, after the end of the connection too.
type Conn struct {
	server  *Server
	wire    wire
	stream  io.ReadWriter // of commands and replies: the wire, or TLS over it
	tls     *tls.Conn     // nil = plain
	sock    *poll.Conn    // that of the wire if a poller serves it; nil = the connection has a goroutine
	id      uint64
	created time.Time
	remote  string
	local   string
	ctx     context.Context // the handler's; see Context
	cancel  context.CancelFunc

	// Of the connection's goroutine alone.
	in        *reader
	reply     Writer
	rests     simba.Seq // what the replies of this batch rest on
	settles   bool      // RestOn was called for this batch
	batches   uint64    // ended so far
	command   int       // where the replies of the command being executed begin in reply
	mode      ReplyMode
	holds     bool          // the command being executed holds pushes back
	confirms  bool          // the reply of the command being executed confirms subscriptions
	closing   bool          // close once the replies are sent
	err       error         // why the connection cannot go on; the first reason counts
	shrinking bool          // a read deadline is set to look after a grown buffer
	listening bool          // SetListening
	spared    time.Duration // when it was last found in use while it was silent, from created
	anonymous time.Duration // since when the client has not authenticated, from created
	turn      time.Duration // when its turn was first looked at, from created; 0 = not yet
	published int           // messages, by receivers, since it last waited for the pushers

	lastActive    atomic.Int64 // nanoseconds since created
	authenticated atomic.Bool
	closed        atomic.Bool
	buffers       atomic.Uint64 // QueryBuffered, packed
	state         atomic.Pointer[any]
	subscriptions [kinds]atomic.Int32
	name          atomic.Pointer[string]

	certificateName atomic.Pointer[string]

	park     sync.Mutex // protects why the goroutine should look up from Read, of this group
	wait     *Wait      // the blocked command
	unblock  Wakeup     // what CLIENT UNBLOCK asked for
	draining bool       // the server is shutting down
	shaking  bool       // the TLS handshake is going on

	wmu sync.Mutex // serializes writes, of whole frames

	push   pushQueue
	topics [kinds]map[string]*topic // its subscriptions; protected by Broker.mu
}

func newConn(s *Server, nc net.Conn) *Conn {
	c := &Conn{
		server:  s,
		wire:    wire{Conn: nc, timeout: s.limits.WriteTimeout},
		created: time.Now(),
		remote:  nc.RemoteAddr().String(),
		local:   nc.LocalAddr().String(),
		in:      newReader(s.limits),
	}
	c.stream = &c.wire
	c.sock, _ = nc.(*poll.Conn)
	c.push.init()
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// ID is unique among the connections of a server and grows. Any goroutine may call it.
func (c *Conn) ID() uint64 { return c.id }

// RemoteAddr is the client's address. Any goroutine may call it.
func (c *Conn) RemoteAddr() string { return c.remote }

// LocalAddr is the address that the client connected to. Any goroutine may call it.
func (c *Conn) LocalAddr() string { return c.local }

// Created is when the connection was accepted. Any goroutine may call it.
func (c *Conn) Created() time.Time { return c.created }

// LastActive is when the client last sent something, or was pushed something. Any
// goroutine may call it.
func (c *Conn) LastActive() time.Time {
	return c.created.Add(time.Duration(c.lastActive.Load()))
}

func (c *Conn) touch() { c.lastActive.Store(int64(c.age())) }

func (c *Conn) age() time.Duration { return time.Since(c.created) }

// Context ends when the connection does: when it is closed, or cut by a Shutdown
// that ran out of time. It does not notice that a client left while a command runs
// that does not wait. Any goroutine may call it.
func (c *Conn) Context() context.Context { return c.ctx }

// Reply takes the replies; they are sent when the batch of commands is executed,
// or by Flush. It must end with a whole reply whenever Flush or Await is called.
func (c *Conn) Reply() *Writer { return &c.reply }

// Proto is the version of RESP that the client chose, 2 or 3. Any goroutine may
// call it.
func (c *Conn) Proto() int { return c.push.proto() }

// SetProto sets the version, 2 or 3, for the replies and pushes to come.
func (c *Conn) SetProto(version int) {
	c.hold()
	c.reply.SetProto(version)
	c.push.setProto(version)
}

// Authenticated reports whether the client has authenticated. Any goroutine may
// call it.
func (c *Conn) Authenticated() bool { return c.authenticated.Load() }

// SetAuthenticated sets what Authenticated reports. Until it is true, the limits
// before authentication hold if Config.RequireAuth says so.
// The time for it begins when it was true and becomes false.
func (c *Conn) SetAuthenticated(ok bool) {
	if was := c.authenticated.Swap(ok); was && !ok {
		c.anonymous = time.Since(c.created)
		c.reconsider()
	}
}

// unauthenticated reports whether the limits before authentication hold.
func (c *Conn) unauthenticated() bool {
	return !c.authenticated.Load() && c.server.requireAuth()
}

// authDeadline is when a client that has yet to authenticate is cut; zero = it need not.
func (c *Conn) authDeadline() time.Time {
	if !c.unauthenticated() {
		return time.Time{}
	}
	return c.created.Add(c.anonymous + c.server.limits.AuthTimeout)
}

// overdue reports whether the time to authenticate is over.
func (c *Conn) overdue() bool {
	by := c.authDeadline()
	return !by.IsZero() && !time.Now().Before(by)
}

// Name is the name that the client gave itself. Any goroutine may call it.
func (c *Conn) Name() string {
	if name := c.name.Load(); name != nil {
		return *name
	}
	return ""
}

// SetName sets what Name returns.
func (c *Conn) SetName(name string) { c.name.Store(&name) }

// State is what SetState stored, nil at first. Any goroutine may call it; what it
// returns is the handler's own to guard.
func (c *Conn) State() any {
	if s := c.state.Load(); s != nil {
		return *s
	}
	return nil
}

// SetState stores the handler's state of this connection.
func (c *Conn) SetState(state any) { c.state.Store(&state) }

// QueryBuffered is how many bytes of the input buffer are used and free, as of the
// last read. Any goroutine may call it.
func (c *Conn) QueryBuffered() (used, free int) {
	b := c.buffers.Load()
	return int(b >> 32), int(b & (1<<32 - 1))
}

func (c *Conn) noteBuffers() {
	used := c.in.buffered()
	c.buffers.Store(uint64(used)<<32 | uint64(len(c.in.buf)-used))
}

// SetReplyMode sets whether the client gets replies, from this command on. Pushes
// and the confirmations of subscriptions are sent in any mode, as in Redis.
func (c *Conn) SetReplyMode(m ReplyMode) {
	if m == ReplySkipNext && c.mode == ReplyOff {
		return
	}
	c.mode = m
}

// ResetReplyMode has the client get replies again, from the next command on if the mode
// skips the reply to this one.
func (c *Conn) ResetReplyMode() {
	if c.mode != replySkip {
		c.mode = ReplyOn
	}
}

// CloseAfterReply makes this command the connection's last: it is closed when the
// replies so far are sent.
func (c *Conn) CloseAfterReply() { c.closing = true }

// Close cuts the connection. What is not sent yet is lost. Any goroutine may call
// it; it does not wait for the connection's goroutine, nor for the client: over TLS
// there is no close_notify.
func (c *Conn) Close() {
	if c.closed.CompareAndSwap(false, true) {
		c.cancel()
		c.wire.Close()
	}
}

// Graceful reports whether the connection ends, or soon will, because the server
// shuts down, so that Handler.Closed can tell that from a client that left. Any
// goroutine may call it.
func (c *Conn) Graceful() bool {
	c.park.Lock()
	defer c.park.Unlock()
	return c.draining
}
