package mysql

import (
	"log/slog"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Options configure the engine.
type Options struct {
	// DSN names the database as go-sql-driver does: user:password@tcp(host:port)/database?tls=true.
	// The engine sets the session settings that it needs (time zone, sql_mode, …) by itself.
	// Required.
	DSN string
	// Migrate creates the table by Schema if it is missing, and adds a missing fencing_token.
	Migrate bool
	// Poll is how often the engine reads the row of a mutex that a client of this server waits for.
	// 0 = only around the end of its lease, from 200 ms before it to 1 s after it. That is the
	// contention timing of Simba's JDBC contenders. A release through another server is then
	// noticed only at that time. Each such mutex costs one read by primary key per Poll.
	Poll time.Duration
	// Timeout bounds each request to the database; 0 = 3 s.
	Timeout time.Duration
	// Notices carries notices to subscribers of this server. Required.
	Notices simba.Notices
	// Logger receives warnings about the database; nil = none.
	Logger *slog.Logger

	HandoffWindow time.Duration // see proxy.QueueSettings.SetHandoffWindow; 0 = no reservations
	QueueGrace    time.Duration // see proxy.QueueSettings.SetQueueGrace; 0 = no grace
}
