package mysql

import (
	"log/slog"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Options say how to reach the database and how to behave towards it.
type Options struct {
	// DSN names the database in the form of go-sql-driver:
	// user:password@tcp(host:port)/database?tls=true. What the engine needs of a
	// connection (time zone, sql_mode, …) it sets itself. Required.
	DSN string
	// Migrate creates the table by Schema if it is missing, and adds fencing_token to one that lacks it.
	Migrate bool
	// Poll is how often a mutex that someone here waits for is looked at. 0 looks
	// when its lease ends, at the contention timing of Simba's own JDBC contenders:
	// from 200 ms before the end to 1 s after it. A release by another server is then
	// noticed at the end of the lease only. With a Poll of p every such mutex costs
	// one statement by its primary key each p.
	Poll time.Duration
	// Timeout bounds each request to the database; 0 = 3 s.
	Timeout time.Duration
	// Notices carries notices to subscribers of this server. Required.
	Notices simba.Notices
	// Logger takes warnings about the database; nil = none.
	Logger *slog.Logger

	HandoffWindow time.Duration // see proxy.QueueSettings.SetHandoffWindow; 0 = free for all
	QueueGrace    time.Duration // see proxy.QueueSettings.SetQueueGrace; 0 = no grace
}
