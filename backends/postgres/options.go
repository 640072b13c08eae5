package postgres

import (
	"log/slog"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Options configure the engine.
type Options struct {
	// URL names the database as psql does: postgres://user:password@host:5432/database?sslmode=…,
	// or host=… dbname=…. The environment variables and files of psql apply too. It may name several
	// hosts. Required.
	URL string
	// Reread returns the present URL. The engine calls it before each new connection. nil = URL does
	// not change; the files that it names may.
	Reread func() (string, error)
	// ListenURL is the URL of the connection that listens for notices of other servers. It is needed
	// if URL leads to a pooler that gives a session to several clients, as PgBouncer does in
	// transaction mode. "" = URL.
	ListenURL string
	// RereadListen is Reread for ListenURL.
	RereadListen func() (string, error)
	// Migrate runs Schema at the start.
	Migrate bool
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
