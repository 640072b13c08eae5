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

// Limits bound the memory and time that one connection can use. A zero field means its default.
type Limits struct {
	Args    int // arguments of a command, including its name; default 1024
	Arg     int // bytes of an argument; default 64 KiB
	Command int // bytes of all arguments of a command together; default 1 MiB
	// MayBeLong reports whether an argument of the command may be longer than Arg, as a script may;
	// nil = none. Command still limits it. Several goroutines may call it at a time.
	MayBeLong func(command []byte) bool
	Inline    int // bytes of an inline command, or of the line before an argument; default 64 KiB

	// UnauthArgs and UnauthArg replace Args and Arg before authentication; default 10 and 16 KiB,
	// as in Redis.
	UnauthArgs, UnauthArg int

	// AuthTimeout is how long a connection may take to authenticate before it is closed, also if
	// it is active; default 10 s. It counts from the accept, or from the last RESET.
	AuthTimeout time.Duration

	// PushQueue is the size of a connection's queue of pushes in bytes; default 1 MiB. A connection
	// that exceeds it is closed.
	PushQueue int
	// ReplyBatch is the size of replies in bytes after which a batch is committed and sent in
	// parts; default 64 KiB.
	ReplyBatch int
	// WriteTimeout is how long a client may read nothing while the server writes, before its
	// connection is closed; default 10 s. It may take 1.5 times as long.
	WriteTimeout time.Duration
	// HandshakeTimeout is how long a TLS handshake may take; default 10 s.
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

// Config configures a Server. The zero value is usable.
type Config struct {
	Limits

	MaxClients  int           // maximum number of connections; 0 = 10000
	IdleTimeout time.Duration // closes a connection that is silent for this long; 0 = never
	Logger      *slog.Logger  // must not block; nil = no log
	Broker      *Broker       // holds the subscriptions; nil = a new one

	// Committer makes the changes durable that Conn.RestOn names. The server calls it for each
	// batch that called RestOn, also after a disconnect. It sends the replies when Commit returns
	// nil. On an error it drops them and closes the connection. Without a Committer, RestOn of a
	// change ends the connection.
	Committer simba.Committer
	// CommitWaited is called with the time that a batch waited for the Committer, on the
	// connection's goroutine. It is not called for a batch that did not wait. It may be nil.
	CommitWaited func(took time.Duration)

	// Poll makes a few goroutines serve the connections of Serve, on Linux. The handler then calls
	// Conn.Detach before anything that may block. Without it each connection has a goroutine.
	// Connections over TLS always have one.
	Poll bool

	// InUse reports whether a connection stays open although it was silent for IdleTimeout; nil =
	// never. It is called on the connection's goroutine and may block.
	InUse func(c *Conn) bool

	// RequireAuth reports whether clients must authenticate now; nil = never. The server calls it
	// before each command of a connection that has not, on the connection's goroutine.
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
		c.Committer = noCommitter{}
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
