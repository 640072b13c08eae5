package resp

import (
	"log/slog"
	"time"

	"github.com/simba-resp/simba-resp"
)

// The defaults of Limits and Config.
const (
	DefaultMaxArgs      = 1024
	DefaultMaxArg       = 64 << 10
	DefaultMaxCommand   = 1 << 20
	DefaultMaxInline    = 64 << 10
	DefaultUnauthArgs   = 10
	DefaultUnauthArg    = 16 << 10
	DefaultPushQueue    = 1 << 20
	DefaultReplyBatch   = 64 << 10
	DefaultWriteTimeout = 10 * time.Second
	DefaultAuthTimeout  = 10 * time.Second
	DefaultMaxClients   = 10000

	DefaultHandshakeTimeout = 10 * time.Second
)

// Limits bound what one connection can make the server hold. A zero field means
// its default.
type Limits struct {
	Args    int // arguments of a command, its name included; 1024
	Arg     int // bytes of an argument; 64 KiB
	Command int // bytes of all arguments of a command together; 1 MiB
	// Long reports whether an argument of a command may be as long as Command, as a script
	// may; nil = none. It is asked about arguments beyond Arg, from any goroutine.
	Long   func(command []byte) bool
	Inline int // bytes of an inline command, or of the line before an argument; 64 KiB

	// UnauthArgs and UnauthArg replace Args and Arg for a connection that has yet
	// to authenticate; 10 and 16 KiB, as in Redis.
	UnauthArgs, UnauthArg int

	// AuthTimeout is how long a connection that has yet to authenticate may take for
	// that before it is closed, whatever it sends meanwhile; 10 s. It counts from when
	// the connection was accepted, or from the RESET that made it anonymous again.
	AuthTimeout time.Duration

	// PushQueue is how many bytes of pushes may wait for a connection before it is
	// cut; 1 MiB.
	PushQueue int
	// ReplyBatch is how many bytes of replies make a batch be settled and sent
	// before all its commands are executed; 64 KiB.
	ReplyBatch int
	// WriteTimeout is how long a client may take nothing of what it is sent before
	// it is cut; 10 s. The deadline is refreshed lazily, so it may be half as long
	// again.
	WriteTimeout time.Duration
	// HandshakeTimeout is how long a client may take for its TLS handshake; 10 s.
	HandshakeTimeout time.Duration
}

func (l Limits) withDefaults() Limits {
	l.Args = orDefault(l.Args, DefaultMaxArgs)
	l.Arg = orDefault(l.Arg, DefaultMaxArg)
	l.Command = orDefault(l.Command, DefaultMaxCommand)
	l.Inline = orDefault(l.Inline, DefaultMaxInline)
	l.UnauthArgs = min(orDefault(l.UnauthArgs, DefaultUnauthArgs), l.Args)
	l.UnauthArg = min(orDefault(l.UnauthArg, DefaultUnauthArg), l.Arg)
	l.AuthTimeout = orDefault(l.AuthTimeout, DefaultAuthTimeout)
	l.PushQueue = orDefault(l.PushQueue, DefaultPushQueue)
	l.ReplyBatch = orDefault(l.ReplyBatch, DefaultReplyBatch)
	l.WriteTimeout = orDefault(l.WriteTimeout, DefaultWriteTimeout)
	l.HandshakeTimeout = orDefault(l.HandshakeTimeout, DefaultHandshakeTimeout)
	return l
}

// Config configures a Server. The zero value serves with the defaults.
type Config struct {
	Limits

	MaxClients  int           // connections at a time; 0 = 10000
	IdleTimeout time.Duration // close a connection that is silent for so long; 0 = never
	Logger      *slog.Logger  // must not block, connections wait for it; nil = no log
	Broker      *Broker       // of the connections' subscriptions; nil = one of the server's own

	// Committer makes durable what replies rest on, by Conn.RestOn; nil = a reply that rests on
	// something is an error. It is called for each such batch of commands, also when the client
	// is gone. The replies are sent after it returned nil. On an error they are dropped and the
	// connection closes.
	Committer simba.Committer
	// CommitWaited is called with the time that a batch waited for the Committer, on the connection's
	// goroutine; not for a batch that did not wait. nil = it is not called.
	CommitWaited func(took time.Duration)

	// Poll has few goroutines serve the connections of Serve, on Linux. The handler then says
	// by Conn.Detach what may take long.
	// Without it each connection has a goroutine, as those over TLS have in any case.
	Poll bool

	// InUse reports whether a connection that has been silent for IdleTimeout is in use all the same
	// and stays; nil = it is not. It is asked on the connection's goroutine, and may ask a store.
	InUse func(c *Conn) bool

	// RequireAuth reports whether clients have to authenticate now; nil = never.
	// It is asked before each command of a connection that has not, from the
	// connection's goroutine.
	RequireAuth func() bool
}

func (c Config) withDefaults() Config {
	c.Limits = c.Limits.withDefaults()
	c.MaxClients = orDefault(c.MaxClients, DefaultMaxClients)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Broker == nil {
		c.Broker = NewBroker()
	}
	if c.Committer == nil {
		c.Committer = durable{}
	}
	if c.CommitWaited == nil {
		c.CommitWaited = func(time.Duration) {}
	}
	if c.InUse == nil {
		c.InUse = func(*Conn) bool { return false }
	}
	if c.RequireAuth == nil {
		c.RequireAuth = func() bool { return false }
	}
	return c
}

func orDefault[T int | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}
