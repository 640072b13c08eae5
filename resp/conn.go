package resp

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// Conn is a client's connection. The Handler may use the methods while the server calls it for this
// connection. Other code may use only the methods that any goroutine may call, as their comments
// say. After the connection has ended, the methods have no effect.
type Conn struct {
	server *Server
	identity
	activity
	login
	ctx    context.Context // see Context
	cancel context.CancelFunc
	closed atomic.Bool
	state  atomic.Pointer[any]

	link
	interrupts
	push pushQueue
	subscriptions

	// Only the connection's goroutine uses this group.
	in input
	replies
	turn
	closing    bool  // the connection ends after the replies are sent
	err        error // why the connection ends; the first reason counts
	deliveries int   // sum of AddReceivers since the last wait for the pushers
}

func newConn(s *Server, nc net.Conn) *Conn {
	c := &Conn{
		server:     s,
		link:       link{wire: newWire(nc, s.cfg.WriteTimeout)},
		interrupts: interrupts{socket: nc},
		in:         input{reader: newReader(s.cfg.Limits)},
		turn:       turn{slots: s.computing},
	}
	c.identity.init(nc)
	c.activity.created = time.Now()
	c.stream = &c.wire
	c.push.init()
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// identity says who a client is. Any goroutine may call its methods.
type identity struct {
	id     uint64
	unix   string // the path of the unix socket; "" = not a unix socket
	remote string
	local  string
	name   atomic.Pointer[string]

	certificateName atomic.Pointer[string]
}

func (i *identity) init(nc net.Conn) {
	i.remote, i.local = nc.RemoteAddr().String(), nc.LocalAddr().String()
	if at, ok := nc.LocalAddr().(*net.UnixAddr); ok {
		i.unix, i.remote = at.Name, at.Name+":0"
		i.local = i.remote
	}
	if named, ok := nc.(interface{ CertificateName() string }); ok {
		name := named.CertificateName()
		i.certificateName.Store(&name)
	}
}

// ID returns a number that no other connection of the server has. Later connections have larger
// ids.
func (i *identity) ID() uint64 { return i.id }

// UnixSocket returns the path of the unix socket that the client connected to. It is "" for other
// connections.
func (i *identity) UnixSocket() string { return i.unix }

// RemoteAddr returns the client's address. Clients of a unix socket all have "path:0", as in Redis.
func (i *identity) RemoteAddr() string { return i.remote }

// LocalAddr returns the address that the client connected to.
func (i *identity) LocalAddr() string { return i.local }

// Name returns the client's name (CLIENT SETNAME).
func (i *identity) Name() string { return textOf(&i.name) }

// SetName sets the client's name.
func (i *identity) SetName(name string) { i.name.Store(&name) }

// CertificateName returns the common name (CN) of the client's verified certificate, as Redis'
// tls-auth-clients-user uses it. It is "" without TLS or without a verified certificate. If the
// net.Conn has a method CertificateName, its result counts. It does not change after the first
// command.
func (i *identity) CertificateName() string { return textOf(&i.certificateName) }

func textOf(p *atomic.Pointer[string]) string {
	if text := p.Load(); text != nil {
		return *text
	}
	return ""
}

// activity says since when a client is connected and when it was active last.
type activity struct {
	created      time.Time
	lastActive   atomic.Int64  // nanoseconds since created
	inUseAt      time.Duration // when Config.InUse last returned true, since created
	awaitsPushes bool          // set by SetAwaitsPushes
}

// Created returns when the connection was accepted. Any goroutine may call it.
func (a *activity) Created() time.Time { return a.created }

// LastActive returns when the server last read from the client, sent a push to it, or ended the
// wait of its blocked command. Any goroutine may call it.
func (a *activity) LastActive() time.Time {
	return a.created.Add(time.Duration(a.lastActive.Load()))
}

func (a *activity) touch() { a.lastActive.Store(int64(time.Since(a.created))) }

// noteInUse records that Config.InUse returned true.
func (a *activity) noteInUse() { a.inUseAt = time.Since(a.created) }

// idleSince returns when the idle timeout begins.
func (a *activity) idleSince() time.Time {
	return a.created.Add(max(time.Duration(a.lastActive.Load()), a.inUseAt))
}

// SetAwaitsPushes sets whether the client waits for pushes other than messages. The idle timeout
// does not apply to such a client.
func (a *activity) SetAwaitsPushes(on bool) { a.awaitsPushes = on }

// login says whether a client has authenticated.
type login struct {
	authenticated atomic.Bool
	lostAt        time.Time // when the client ceased to be authenticated
}

// Authenticated reports whether the client has authenticated. Any goroutine may call it.
func (l *login) Authenticated() bool { return l.authenticated.Load() }

// Context returns a context that ends when the connection is closed. The server notices a
// disconnect between commands, and while a command is blocked. Any goroutine may call it.
func (c *Conn) Context() context.Context { return c.ctx }

// Proto returns the version of RESP that the client chose, 2 or 3. Any goroutine may call it.
func (c *Conn) Proto() int { return c.push.proto() }

// SetProto sets the version of RESP, 2 or 3, for later replies and pushes.
func (c *Conn) SetProto(version int) {
	c.HoldPushes()
	c.reply.SetProto(version)
	c.push.setProto(version)
}

// SetAuthenticated records whether the client has authenticated. While the client has not
// authenticated and Config.RequireAuth returns true, the limits before authentication apply. A
// change from true to false restarts AuthTimeout.
func (c *Conn) SetAuthenticated(ok bool) {
	if was := c.authenticated.Swap(ok); was && !ok {
		c.lostAt = time.Now()
		c.interrupt()
	}
}

// unauthenticated reports whether the limits before authentication apply.
func (c *Conn) unauthenticated() bool {
	return !c.authenticated.Load() && c.server.cfg.RequireAuth()
}

// authDeadline returns when AuthTimeout ends. The zero time means that AuthTimeout does not apply.
func (c *Conn) authDeadline() time.Time {
	if !c.unauthenticated() {
		return time.Time{}
	}
	since := c.created
	if !c.lostAt.IsZero() {
		since = c.lostAt
	}
	return since.Add(c.server.cfg.AuthTimeout)
}

// overdue reports whether AuthTimeout has passed.
func (c *Conn) overdue() bool {
	by := c.authDeadline()
	return !by.IsZero() && !time.Now().Before(by)
}

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
