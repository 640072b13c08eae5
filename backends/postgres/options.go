package postgres

import "github.com/simba-resp/simba-resp/backends/proxy"

// Options configure the engine.
type Options struct {
	proxy.Options // without Poll

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
}
