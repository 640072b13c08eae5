// Package commands has the table of commands and their handlers. A handler parses the arguments,
// calls the simba.Backend and writes the reply.
//
//	resp.Server ── Execute ► table.find ► gate.admit ► client.run ► handler ► simba.Backend
//	                                                       │
//	                                                       └ observers
//	            ── Closed ──► release the leases that SESSION bound to the connection, and end the
//	                          waits whose outcomes it collects
//
// The gate decides whether a command may run: by the login, the user's rules, the memory, and the
// modes of the connection. The observers watch the commands of all clients: MONITOR, statistics,
// SLOWLOG and the audit log. A client is the state of one connection, and has the handlers.
//
// A file cmd_<family>.go has the rows, parsers and handlers of one family of commands. The rows of
// all families are the table. Dispatch, COMMAND, HELP, SIMBA.HELP and docs/reference/commands.md
// use the table.
//
// The files are in layers, and use almost only what is in earlier ones:
//
//	errors, parse, settings, table, permissions
//	monitors, slowlog, audit, statistics ► observers
//	login_delay, transaction, store, session ► gate
//	commands, client, waiters, keytx, expiry
//	cmd_*
//	config, dispatch, http_login, stats: what the server's main program and resp call
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
	"sync"
	"time"

	"github.com/simba-resp/simba-resp/resp"
)

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
	cfg       Config // with defaults; does not change
	store     store
	gate      gate
	waiters   sync.Map // those that SIMBA.NEXT has bound, by name
	tenures   sync.Map // *tenure of each contender's last request via a waiter, by tenureHash
	observers observers
	server    *resp.Server // set once by Attach, before the first connection
	table     *table
	settings  settings
	scripting scripting
	backups   backups

	mode, role string    // for HELLO and INFO
	beside     *Commands // see Beside; nil = none
}

var _ resp.Handler = (*Commands)(nil)

func (x *Commands) age() time.Duration { return time.Since(x.cfg.Info.Started) }
