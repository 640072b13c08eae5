package resp

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Defaults of Limits.
const (
	DefaultMaxArg           = 64 << 10
	defaultMaxInline        = 64 << 10
	defaultAuthTimeout      = 10 * time.Second
	defaultHandshakeTimeout = 10 * time.Second
)

// The limits before authentication, in place of Limits.Args and Limits.Arg, as in Redis.
const (
	unauthArgs = 10
	unauthArg  = 16 << 10
)

// Limits bound the memory and time that one connection can use. A zero field means its default.
type Limits struct {
	Args    int // arguments of a command, including its name; default 16,384
	Arg     int // bytes of an argument; default 64 KiB
	Command int // bytes of all arguments of a command together; default 1 MiB
	// MayBeLong reports whether a command, such as EVAL, may have arguments longer than Arg; nil =
	// no command may. The limit Command still applies. Several goroutines may call MayBeLong at a
	// time.
	MayBeLong func(command []byte) bool
	Inline    int // bytes of an inline command, or of a line "*<n>" or "$<n>"; default 64 KiB

	// AuthTimeout is how long a client may take to authenticate; default 10 s. After that time the
	// server closes even an active connection. The time begins when the server accepts the
	// connection, and again when an authenticated client sends RESET.
	AuthTimeout time.Duration

	// PushQueue is the size of a connection's push queue in bytes; default 1 MiB. The server closes
	// a connection whose queue overflows.
	PushQueue int
	// ReplyBatch is a size in bytes; default 64 KiB. When the replies of a batch reach this size,
	// the server commits and sends them before it executes the rest of the batch.
	ReplyBatch int
	// WriteTimeout is how long a client may read nothing while the server writes; default 10 s.
	// The server closes the connection after 1 to 1.5 times WriteTimeout.
	WriteTimeout time.Duration
	// HandshakeTimeout is how long a TLS handshake may take; default 10 s.
	HandshakeTimeout time.Duration
}

func (l Limits) withDefaults() Limits {
	l.Args = cmp.Or(l.Args, 16<<10)
	l.Arg = cmp.Or(l.Arg, DefaultMaxArg)
	l.Command = cmp.Or(l.Command, 1<<20)
	l.Inline = cmp.Or(l.Inline, defaultMaxInline)
	l.AuthTimeout = cmp.Or(l.AuthTimeout, defaultAuthTimeout)
	l.PushQueue = cmp.Or(l.PushQueue, 1<<20)
	l.ReplyBatch = cmp.Or(l.ReplyBatch, 64<<10)
	l.WriteTimeout = cmp.Or(l.WriteTimeout, 10*time.Second)
	l.HandshakeTimeout = cmp.Or(l.HandshakeTimeout, defaultHandshakeTimeout)
	return l
}

// Config configures a Server. The zero value is usable.
type Config struct {
	Limits

	MaxClients  int           // maximum number of connections; 0 = 10000
	IdleTimeout time.Duration // closes a connection that is silent for this long; 0 = never
	Logger      *slog.Logger  // must not block; nil = no log
	Broker      *Broker       // holds the subscriptions; nil = a new one

	// A command names its changes with Conn.ReplyAfter, and the Committer makes them durable. The
	// server calls the Committer for each batch in which a command called ReplyAfter, even after a
	// disconnect. When the Committer returns nil, the server sends the replies. On an error the
	// server drops the replies and closes the connection. Committer may be nil if no
	// command calls ReplyAfter.
	Committer simba.Committer

	// InUse reports whether a connection stays open although it was silent for IdleTimeout; nil =
	// never. The server calls InUse on the connection's goroutine. InUse may block.
	InUse func(c *Conn) bool

	// RequireAuth reports whether clients must authenticate now; nil = never. The server calls it
	// before each command of a client that has not authenticated, on the connection's goroutine.
	RequireAuth func() bool
}

func (c Config) withDefaults() Config {
	c.Limits = c.Limits.withDefaults()
	c.MaxClients = cmp.Or(c.MaxClients, 10000)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Broker = cmp.Or(c.Broker, NewBroker())
	if c.InUse == nil {
		c.InUse = func(*Conn) bool { return false }
	}
	if c.RequireAuth == nil {
		c.RequireAuth = func() bool { return false }
	}
	return c
}
