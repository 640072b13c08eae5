package mysql

import (
	"log/slog"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Options configure the engine.
type Options struct {
	// DSN names the database as go-sql-driver does: user:password@tcp(host:port)/database?tls=true.
	// The parameters tls-ca, tls-cert and tls-key name PEM files. With one of them, the engine uses
	// TLS and verifies the server. The engine sets the session settings that it needs (time zone,
	// sql_mode, …) by itself. Required.
	DSN string
	// Reread returns the present DSN. The engine calls it before each new connection, and uses the
	// login and the TLS files of its result. nil = DSN does not change; the files may.
	Reread func() (string, error)
	// Migrate creates the table by Schema if it is missing, and adds a missing fencing_token.
	Migrate bool
	// Poll is how often the engine reads the row of a mutex that a client of this server waits for
	// or subscribes to. The read finds a release through another server. 0 = the engine reads the
	// row only around the end of the lease, from 200 ms before it to 1 s after it. Simba's JDBC
	// contenders do the same.
	Poll time.Duration
	// Timeout bounds each request to the database; 0 = 3 s.
	Timeout time.Duration
	// Notices carries notices to subscribers of this server. Required.
	Notices simba.Notices
	// Logger receives warnings about the database; nil = none.
	Logger *slog.Logger

	HandoffWindow time.Duration // see proxy.QueueSettings.SetHandoffWindow; 0 = no reservations
	QueueGrace    time.Duration // see proxy.QueueSettings.SetQueueGrace; 0 = no grace
	History       int           // number of events kept; 0 = history.DefaultLimit
}
