package commands

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"maps"
	"math"
	"slices"
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
	// Cluster is nil for a single server.
	Cluster Cluster
	// Sentinel returns what a Sentinel replies. If it is not nil, New returns a Sentinel, which serves
	// only what its clients need.
	Sentinel func() *SentinelView
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

// New returns the handler for cfg. The caller must call Attach before the server accepts
// connections, and Close after the server's Shutdown.
func New(cfg Config) *Commands {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.Info.Started.IsZero() {
		cfg.Info.Started = time.Now()
	}
	if cfg.Info.RunID == "" {
		id := make([]byte, 20)
		rand.Read(id)
		cfg.Info.RunID = hex.EncodeToString(id)
	}
	x := &Commands{
		cfg:   cfg,
		store: store{backend: cfg.Backend},
		gate:  gate{users: cfg.Users},
		table: newTable(families()),
		mode:  "standalone",
		role:  "master",
	}
	if cfg.Sentinel != nil {
		x.mode, x.role = "sentinel", "sentinel"
		// The other commands keep their ids, which the rules of users name.
		x.table.entries = slices.DeleteFunc(x.table.entries, func(e *entry) bool { return !slices.Contains(sentinelServes, e.name) })
		maps.DeleteFunc(x.table.byName, func(name string, _ *entry) bool { return !slices.Contains(sentinelServes, name) })
	}
	x.store.keyspace, _ = cfg.Backend.(simba.Keyspace)
	if x.gate.users == nil {
		x.gate.users, _ = access.Open(Catalog(), access.Options{}) // without a file there is no error
	}
	x.store.faults.log, x.backups.log = cfg.Logger, cfg.Logger
	x.settings.log, x.gate.memory.log = cfg.Logger, cfg.Logger
	x.scripting.init(cfg.Logger)
	x.settings.add(cfg.Settings...)
	x.settings.add(x.ownSettings()...)
	x.observers.init(cmp.Or(cfg.Audit, cfg.Logger), &x.settings)
	x.gate.memory.used = x.store.dataset
	x.SetMaxMemory(cfg.MaxMemory)
	return x
}

// Attach sets the server. resp.NewServer needs the handler, so New cannot take the server.
func (x *Commands) Attach(s *resp.Server) { x.server = s }

// Beside says that y serves the same users by another server, so that a change of their rules applies
// to its clients too.
func (x *Commands) Beside(y *Commands) { x.beside = y }

// Close ends background work and logs how many lines the audit log has omitted. The server must
// have been shut down.
func (x *Commands) Close() {
	x.observers.audit.close()
}

// LongArguments reports whether the arguments of a command may be longer than resp.Limits.Arg. It
// is the function for resp.Limits.MayBeLong.
func (x *Commands) LongArguments(name []byte) bool {
	e := lookup(x.table.byName, name)
	return e != nil && (e.has(longArgs) || slices.ContainsFunc(e.subs, func(sub *entry) bool { return sub.has(longArgs) }))
}

// SetMaxMemory limits the memory of the engine's mutexes, in bytes; 0 = no limit. Above the limit,
// requests that take more memory get simba.ErrOutOfMemory. The waiters of one mutex may take half
// of the limit, and cached scripts an eighth. Only an engine that is a simba.Keyspace counts its
// memory.
func (x *Commands) SetMaxMemory(bytes uint64) {
	scripts := bytes / 8
	if bytes == 0 {
		scripts = math.MaxInt
	}
	x.scripting.runner.LimitCache(int(min(scripts, math.MaxInt)))
	if x.store.keyspace != nil {
		x.store.keyspace.LimitQueues(int64(min(bytes/2, math.MaxInt64)))
	}
	x.gate.memory.set(bytes)
}

// Catalog returns the commands and categories that the rules of users may name.
func Catalog() *access.Catalog {
	var list []access.Command
	for e := range newTable(families()).all() {
		list = append(list, access.Command{Name: e.full, Categories: members(e.acl(), categoryNames[:])})
	}
	return access.NewCatalog(list, categoryNames[:], resp.Match)
}

// families returns the rows of this package, in the order of the documentation.
func families() []family {
	return []family{
		{simbaGroup, 0, simbaCommands},
		{"connection", catConnection, connectionCommands},
		{"connection", catConnection, clientCommands},
		{"pubsub", 0, pubsubCommands},
		{"transactions", catTransaction, transactionCommands},
		{"scripting", catScripting, scriptingCommands},
		{"generic", catKeyspace, scanCommands},
		{"generic", catKeyspace, keyspaceCommands},
		{"string", catString, stringCommands},
		{"string", catString, counterCommands},
		{"generic", catKeyspace, genericCommands},
		{"generic", catKeyspace, expireCommands},
		{"hash", catHash, hashCommands},
		{"sorted-set", catSortedSet, queueCommands},
		{"server", 0, aclCommands},
		{"server", catConnection, commandCommands},
		{"server", 0, configCommands},
		{"server", 0, infoCommands},
		{"server", 0, monitorCommands},
		{"server", 0, serverCommands},
		{"server", 0, slowlogCommands},
		{"sentinel", catConnection, sentinelCommands},
	}
}

var simbaCommands = []command{
	simbaAcquireRow,
	simbaNextRow,
	simbaGuardRow,
	simbaReleaseRow,
	simbaOwnerRow,
	simbaQueueRow,
	simbaScanRow,
	simbaCheckRow,
	simbaBreakRow,
	simbaHistoryRow,
	simbaBackupRow,
	simbaClusterRow,
	{
		name: "simba.help", arity: 1, flags: loading | stale | fast, since: "0.1.0", run: (*client).simbaHelp,
		summary: "Shows the syntax of the SIMBA commands",
	},
}

// RequireAuth reports whether clients must authenticate. It is a resp.Config.RequireAuth.
func (x *Commands) RequireAuth() bool { return x.gate.requireAuth() }
