// Package commands has the table of commands and their handlers. A handler parses the arguments,
// calls the simba.Backend and writes the reply.
//
//	resp.Server ── Execute ► find in the table ─► admit ─► handler ─► simba.Backend
//	            ── Closed ──► release the leases that SESSION bound to the connection
//
// A file cmd_<family>.go has the rows, parsers and handlers of one family of commands. The rows of
// all families are the table. Dispatch, COMMAND, HELP, SIMBA.HELP and docs/reference/commands.md
// use the table.
//
// Invariants:
//
//   - A handler parses every argument before it calls the backend, so an error of syntax or range
//     changes nothing.
//   - A handler passes the Seq of every result to Conn.ReplyAfter. The connection sends the reply when
//     the change with this Seq is durable. For an error, client.fail calls ReplyAfter(0), because the
//     backend may have notices to send.
//   - A handler writes one reply. SUBSCRIBE and similar commands write one for each channel.
//   - A handler returns the error that is its reply. Only client.fail turns an error into text and
//     counts it.
package commands

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/resp"
)

// Config configures New.
type Config struct {
	// Backend keeps the mutexes. It is required.
	Backend simba.Backend
	// StoreTimeout limits the time of a command that calls the backend many times; 0 = no limit.
	StoreTimeout time.Duration
	// Settings are parameters of CONFIG GET and SET, in addition to those of this package.
	Settings []Setting
	// Users are the accounts and their rules, which access.Open has opened with the result of
	// Catalog. Nil means that there is only the default user, which may do everything without a
	// password.
	Users *access.Accounts
	// Info describes the server, for INFO.
	Info Info
	// About returns more fields for the server section of INFO; nil = none.
	About func() []Field
	// Persistence returns more fields for the persistence section of INFO; nil = none.
	Persistence func() []Field
	// LongestLease returns the longest lease, ttl + transition, that the engine vouches for at
	// present; nil = no limit.
	LongestLease func() time.Duration
	// MaxMemory limits the memory of mutexes, in bytes; 0 = no limit. See SetMaxMemory.
	MaxMemory uint64
	// Backup begins a copy of the engine's data. At most one copy is open at a time. Nil means that
	// the engine keeps no data on disk.
	Backup func() (Backup, error)
	// Shutdown begins a graceful stop and returns at once; nil = SHUTDOWN is refused.
	Shutdown func()
	// Logger gets the log lines; nil = slog.Default(). It must not block, because clients wait for
	// it.
	Logger *slog.Logger
	// Audit gets the audit log; nil = Logger. It must not block either.
	Audit *slog.Logger
}

// Info describes the server. It never changes.
type Info struct {
	Version    string    // of simba-resp
	Engine     string    // "embedded", ...
	Durability string    // "always", "async", "memory"; "" = the store decides
	Survives   bool      // leases survive the end of this process
	Executable string    // path
	ConfigFile string    // path, "" = none
	TCPPort    int       // 0 = not on TCP
	RunID      string    // 40 hex digits; "" = made up by New
	Started    time.Time // zero = when New was called
}

// Field is a line of INFO.
type Field struct{ Name, Value string }

// Commands executes the commands of all connections. It is a resp.Handler, and safe for concurrent
// use.
type Commands struct {
	backend     simba.Backend
	keyspace    simba.Keyspace // the backend if it is a Keyspace, else nil
	users       *access.Accounts
	info        Info
	about       func() []Field
	persistence func() []Field
	longest     func() time.Duration // nil = no limit
	shutdown    func()

	storeTimeout time.Duration

	log *slog.Logger

	server *resp.Server // set once by Attach, before the first connection
	table  *table

	settings  []Setting
	settingMu sync.Mutex // held during CONFIG SET, which sets all its parameters or none

	scripting scripting

	errors      errorTally
	storeFaults storeFaults
	slowlog     slowlog
	monitors    monitors
	denials     [denialReasons]atomic.Uint64
	memory      memoryLimit
	waits       waitLimit
	backups     backups
	audit       audit
	loginDelays loginDelays

	acquires results // of SIMBA.ACQUIRE
	guards   results // of SIMBA.GUARD
	waited   waits
	sessions atomic.Int64

	certificateName func(*resp.Conn) string // tests replace it
}

var _ resp.Handler = (*Commands)(nil)

// New returns the handler for cfg. The caller must call Attach before the server accepts
// connections, and Close after the server's Shutdown.
func New(cfg Config) *Commands {
	x := &Commands{
		backend:      cfg.Backend,
		users:        cfg.Users,
		info:         cfg.Info,
		about:        cfg.About,
		persistence:  cfg.Persistence,
		longest:      cfg.LongestLease,
		shutdown:     cfg.Shutdown,
		storeTimeout: cfg.StoreTimeout,
		log:          cfg.Logger,
		table:        newTable(),

		certificateName: (*resp.Conn).CertificateName,
	}
	x.keyspace, _ = cfg.Backend.(simba.Keyspace)
	if x.users == nil {
		x.users, _ = access.Open(Catalog(), access.Options{}) // without a file there is no error
	}
	if x.log == nil {
		x.log = slog.Default()
	}
	x.storeFaults.log = x.log
	x.backups.begin = cfg.Backup
	x.audit.init(cmp.Or(cfg.Audit, x.log))
	if x.info.Started.IsZero() {
		x.info.Started = time.Now()
	}
	if x.info.RunID == "" {
		id := make([]byte, 20)
		rand.Read(id)
		x.info.RunID = hex.EncodeToString(id)
	}
	x.scripting.init(x.log)
	x.slowlog.reset()
	x.slowlog.threshold.Store(defaultSlowlogThreshold)
	x.slowlog.limit.Store(defaultSlowlogLimit)
	x.settings = x.mergeSettings(cfg.Settings)
	x.memory.used, x.memory.log = x.dataset, x.log
	x.SetMaxMemory(cfg.MaxMemory)
	return x
}

// Attach sets the server. resp.NewServer needs the handler, so New cannot take the server.
func (x *Commands) Attach(s *resp.Server) { x.server = s }

// Close ends background work and logs how many lines the audit log has omitted. The server must
// have been shut down.
func (x *Commands) Close() {
	x.audit.close()
}

// LongArguments reports whether the arguments of a command may be longer than resp.Limits.Arg. It
// is the function for resp.Limits.MayBeLong.
func (x *Commands) LongArguments(name []byte) bool {
	e := lookup(x.table.byName, name)
	if e == nil {
		return false
	}
	for _, sub := range e.subs {
		if sub.has(longArgs) {
			return true
		}
	}
	return e.has(longArgs)
}

func (x *Commands) age() time.Duration { return time.Since(x.info.Started) }

// Opened implements resp.Handler. If the client has a certificate, Opened sets the user at once,
// because the limits for the first command depend on the user.
func (x *Commands) Opened(conn *resp.Conn) {
	if x.certificateName(conn) != "" {
		x.client(conn)
	}
}

// Execute implements resp.Handler.
func (x *Commands) Execute(conn *resp.Conn, args [][]byte) {
	c := x.client(conn)
	e, err := x.table.find(args)
	if err == nil {
		err = c.admit(e, args)
	}
	switch {
	case err != nil:
		c.reject(e, err)
	case c.tx != nil && !e.has(immediate):
		c.enqueue(e, args)
	default:
		c.run(e, args)
	}
}

// Closed implements resp.Handler. It releases the leases that SESSION bound to the connection. If
// the server is stopping, Closed keeps these leases, because the client will reconnect.
func (x *Commands) Closed(conn *resp.Conn) {
	c, ok := conn.State().(*client)
	if !ok {
		return
	}
	x.monitors.remove(c)
	c.endTransaction()
	c.endSession()
	c.endBackup()
	if !conn.ServerStopping() {
		c.releaseSession()
	}
}
