package mysql

import "github.com/simba-resp/simba-resp/backends/proxy"

// Options configure the engine.
type Options struct {
	proxy.Options

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
}
