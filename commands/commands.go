// Package commands is the table of commands and their handlers: it parses what
// a connection sent, makes one call to the simba.Backend and writes the reply.
//
//	resp.Server ── Serve ──► find in the table ─► admit ─► handler ─► simba.Backend
//	            ── Closed ─► release what SESSION bound to the connection
//
// One table, the slices in the files cmd_*.go, says everything there is to
// know of a command. Dispatch, arity errors, COMMAND, the HELP subcommands,
// SIMBA.HELP and the table in the README are all made from it.
//
// Invariants:
//
//   - A handler parses every argument before it calls the backend: an error of
//     syntax or range changes nothing.
//   - A reply that rests on a change is appended at once and sent only when that is
//     durable: every result's Seq goes to Conn.RestOn.
//   - A handler appends exactly one reply, SUBSCRIBE and its kin one a channel.
//   - Errors go out through client.fail, the only place that turns an error into
//     text and counts it.
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

// Config is what the commands need of the rest of the server.
type Config struct {
	// Backend keeps the mutexes. Required.
	Backend simba.Backend
	// StoreTimeout is how long a command that asks the backend many times may take
	// for it; 0 = as long as it takes.
	StoreTimeout time.Duration
	// Settings are what CONFIG GET and SET work on, besides the commands' own.
	Settings []Setting
	// Users are who may do what, by the names of Catalog; nil = only the default user,
	// who may do everything without a password.
	Users *access.Accounts
	// Info holds facts for INFO.
	Info Info
	// About returns more fields for INFO's section server; nil = none.
	About func() []Field
	// Persistence returns more fields for INFO's section persistence; nil = none.
	Persistence func() []Field
	// MaxMemory is as in SetMaxMemory.
	MaxMemory uint64
	// Shutdown asks for a graceful stop and returns at once; nil = SHUTDOWN is
	// refused.
	Shutdown func()
	// Logger takes what no client can be told; nil = slog.Default(). It must not block: clients
	// wait for it.
	Logger *slog.Logger
	// Audit takes who did what that matters to those who run the server; nil = Logger. It must
	// not block either.
	Audit *slog.Logger
}

// Info holds facts about the server that don't change while it runs.
type Info struct {
	Version    string    // of simba-resp
	Engine     string    // "embedded", ...
	Durability string    // "always", "async", "memory"; "" = it is a store's, not this server's
	Survives   bool      // leases outlive this process
	Executable string    // path
	ConfigFile string    // path, "" = none
	TCPPort    int       // 0 = not on TCP
	RunID      string    // 40 hex digits; "" = made up by New
	Started    time.Time // zero = when New was called
}

// Field is a line of INFO.
type Field struct{ Name, Value string }

// Commands executes what connections send. It is a resp.Handler, used by all
// connections at once.
type Commands struct {
	backend     simba.Backend
	keyspace    simba.Keyspace // the backend's; nil = it has none, and its calls wait for a store
	users       *access.Accounts
	info        Info
	about       func() []Field
	persistence func() []Field
	shutdown    func()

	storeTimeout time.Duration

	log *slog.Logger

	server *resp.Server // set once by Attach, before the first connection
	table  *table

	settings  []Setting
	settingMu sync.Mutex // serializes CONFIG SET, so that it is all or nothing

	scripting scripting
	keyEvents keyEvents

	errors      errorTally
	storeFaults storeFaults
	slowlog     slowlog
	latency     latencyMonitor
	monitors    monitors
	rates       rates
	aclLog      aclLog
	memory      memoryLimit
	waits       waitLimit
	audit       audit
	loginDelays loginDelays

	certificateName func(*resp.Conn) string // that of the connection; a test's own
	memPeak         atomic.Uint64           // largest used_memory that INFO has seen
}

var _ resp.Handler = (*Commands)(nil)

// New returns the handler of cfg. Attach must be called before it serves, and Close after.
func New(cfg Config) *Commands {
	x := &Commands{
		backend:      cfg.Backend,
		users:        cfg.Users,
		info:         cfg.Info,
		about:        cfg.About,
		persistence:  cfg.Persistence,
		shutdown:     cfg.Shutdown,
		storeTimeout: cfg.StoreTimeout,
		log:          cfg.Logger,
		table:        newTable(),

		certificateName: (*resp.Conn).CertificateName,
	}
	x.keyspace, _ = cfg.Backend.(simba.Keyspace)
	if x.users == nil {
		x.users, _ = access.Open(Catalog(), access.Options{}) // no file, no fault
	}
	if x.log == nil {
		x.log = slog.Default()
	}
	x.storeFaults.log = x.log
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

// Attach tells the commands which server they serve: the handler needs the
// server as much as the server its handler.
func (x *Commands) Attach(s *resp.Server) { x.server = s }

// Close ends what goes on in background, and has the log tell what it has left out. The server that
// is served must have been shut down.
func (x *Commands) Close() {
	x.audit.close()
}

// LongArguments reports whether a command takes arguments as long as a whole command: scripts.
// It is a resp.Limits.Long.
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

// age is the time since the server's start.
func (x *Commands) age() time.Duration { return time.Since(x.info.Started) }

// Opened implements resp.Handler: who has shown a certificate is known before the first command is
// read, with the limits of a user.
func (x *Commands) Opened(conn *resp.Conn) {
	if x.certificateName(conn) != "" {
		x.client(conn)
	}
}

// Serve implements resp.Handler.
func (x *Commands) Serve(conn *resp.Conn, args [][]byte) {
	c := x.client(conn)
	c.w = conn.Reply()
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

// CommitWaited is a resp.Config.CommitWaited: LATENCY shows the waits for the disk.
func (x *Commands) CommitWaited(took time.Duration) { x.latency.consider(commitEvent, took) }

// Closed implements resp.Handler. A connection that the server closes while it
// stops keeps the leases that SESSION bound to it: its client comes back.
func (x *Commands) Closed(conn *resp.Conn) {
	c, ok := conn.State().(*client)
	if !ok {
		return
	}
	x.monitors.remove(c)
	c.endTransaction()
	if !conn.Graceful() {
		c.releaseSession()
	}
}
