package postgres

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/simba-resp/simba-resp/credentials"
)

const (
	// maxConns bounds the connections to the database, besides the one that listens. Further requests
	// wait for a free one until their deadline.
	maxConns = 32
	// maxIdle is how long an unused connection is kept. It is well below the idle limits of common
	// firewalls.
	maxIdle = 3 * time.Minute
)

// target is a parsed URL, with the contents of the files that it names.
type target struct {
	*pgxpool.Config
	expires map[string]time.Time // when the certificates expire, by setting
}

// unreplicated is set in a connection's CustomData if a commit did not wait for the standbys.
const unreplicated = "unreplicated"

// errUnreplicated is returned when somebody has canceled a commit that waited for a synchronous
// standby. The primary has the change, and reports success.
var errUnreplicated = errors.New("the wait of a commit for the synchronous standby was canceled")

// openSource opens the URL in the setting, and reads it again for each connection.
func openSource(o Options, setting, text string, reread func() (string, error), validate pgconn.ValidateConnectFunc) (*credentials.Source[target], error) {
	return credentials.Open(credentials.Config[target]{
		Text: text, Reread: reread,
		Parse: func(text string) (target, error) { return parseURL(setting, text, o.Timeout, validate) },
		Failed: func(err error) {
			o.Logger.Error("cannot read the login or the TLS files of the database again; keeping the last ones", "err", err)
		},
	})
}

// parseURL parses a URL and adds what the engine needs. The URL may contain a password, so errors
// show nothing of it but what names a wrong file or value. A connection counts only if validate
// accepts it; otherwise the driver tries the next host.
func parseURL(setting, text string, timeout time.Duration, validate pgconn.ValidateConnectFunc) (t target, err error) {
	if text == "" {
		return t, errors.New(setting + " is empty")
	}
	if t.Config, err = pgxpool.ParseConfig(text); err != nil {
		why := ": expected postgres://user:password@host:5432/database"
		_, message, _ := strings.Cut(err.Error(), "`: ")
		for _, safe := range []string{"failed to configure TLS", "failed to read service", "unknown target_session_attrs", "invalid connect_timeout"} {
			if strings.HasPrefix(message, safe) {
				why = ": " + message
			}
		}
		return t, errors.New("invalid " + setting + why)
	}
	cfg := t.ConnConfig
	// A frozen host must not use up the time of a request. libpq's connect_timeout counts for each
	// host too.
	if cfg.ConnectTimeout == 0 || cfg.ConnectTimeout > timeout {
		cfg.ConnectTimeout = timeout
	}
	cfg.RuntimeParams["client_encoding"] = "UTF8"
	cfg.RuntimeParams["application_name"] = cmp.Or(cfg.RuntimeParams["application_name"], "simba-resp")
	wanted := cfg.ValidateConnect
	cfg.ValidateConnect = func(ctx context.Context, c *pgconn.PgConn) error {
		if wanted != nil {
			if err := wanted(ctx, c); err != nil {
				return err
			}
		}
		return validate(ctx, c)
	}
	cfg.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		if n.Routine == "SyncRepWaitForLSN" { // the text depends on the server's language
			c.CustomData()[unreplicated] = true
		}
	}
	t.expires = certificates(setting, text)
	return t, nil
}

// openPool opens the pool. It calls connected for each new connection.
func openPool(source *credentials.Source[target], connected func()) (*pgxpool.Pool, error) {
	cfg := source.Last().Config
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns, cfg.MaxConnIdleTime = maxConns, 0, 0, maxIdle
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		*c = *source.Get().ConnConfig.Copy()
		return nil
	}
	cfg.AfterConnect = func(context.Context, *pgx.Conn) error {
		connected()
		return nil
	}
	return pgxpool.NewWithConfig(context.Background(), cfg) // connects when it is used
}

// certificates returns when the certificates in the files of a URL expire. The driver has read the
// files before, so errors do not matter.
func certificates(setting, text string) map[string]time.Time {
	expires := make(map[string]time.Time)
	read := func(parameter string) (content []byte, file string) {
		if m := regexp.MustCompile(`[?&\s]` + parameter + `\s*=\s*'?([^&'\s]+)`).FindStringSubmatch(" " + text); m != nil {
			file, _ = url.QueryUnescape(m[1])
		}
		file = cmp.Or(file, os.Getenv("PG"+strings.ToUpper(parameter)))
		content, _ = os.ReadFile(file)
		return content, file
	}
	for _, parameter := range []string{"sslrootcert", "sslcert"} {
		if content, file := read(parameter); len(content) > 0 {
			if _, at, err := credentials.Authorities(content, file); err == nil {
				expires[setting+" "+parameter] = at
			}
		}
	}
	return expires
}
