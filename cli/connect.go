package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/spf13/cobra"

	"github.com/simba-resp/simba-resp/credentials"
)

// dialTimeout limits how long a command waits for a connection, including the TLS handshake.
const dialTimeout = 5 * time.Second

// A command reports its errors itself.
func init() { logging.Disable() }

// Connect returns a client of the server that the flags of [AddConnection] name. It waits until the
// server has replied. The caller closes the client.
func Connect(cmd *cobra.Command) (*redis.Client, error) {
	o, err := Options(cmd)
	if err != nil {
		return nil, err
	}
	c := redis.NewClient(o)
	if err := c.Ping(cmd.Context()).Err(); err != nil {
		c.Close()
		return nil, Explain(o, err)
	}
	return c, nil
}

// Options returns the options for go-redis that the flags of [AddConnection] name. It does not
// connect. Each new connection reads the files of the settings again. Commands are not retried,
// because a second BREAK would end the next tenure. A caller whose commands block must set
// ReadTimeout.
//
// The options do not have the password: OnConnect logs in. go-redis would send a wrong password
// twice, by HELLO and by AUTH, and the server would count and delay both.
func Options(cmd *cobra.Command) (*redis.Options, error) {
	source, err := credentials.Open(credentials.Config[parsed]{
		Parse: func(string) (parsed, error) { return parseOptions(cmd) },
		Failed: func(err error) {
			fmt.Fprintf(cmd.ErrOrStderr(), "simba-resp: %v; the last login stays in use\n", err)
		},
		Once: func(p parsed) []string { return p.files },
	})
	if err != nil {
		return nil, err
	}
	const resp3 = 3
	o, name := *source.Last().Options, "simba-resp:"+cmd.Name()
	o.Password = ""
	first := new(atomic.Int32)
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addrs := strings.Split(addr, ","); network == "tcp" && len(addrs) > 1 {
			return dialAny(ctx, *source.Get().Options, addrs, first)
		}
		return redis.NewDialer(source.Get().Options)(ctx, network, addr)
	}
	o.OnConnect = func(ctx context.Context, c *redis.Conn) error {
		if now := source.Last(); now.Password != "" {
			return c.Hello(ctx, resp3, now.Username, now.Password, name).Err()
		}
		// A user without the right to set a name can have other rights.
		_ = c.ClientSetName(ctx, name).Err()
		return nil
	}
	return &o, nil
}

// dialAny connects to an address that answers. It begins with the index first, which it moves past
// each address that does not answer.
func dialAny(ctx context.Context, o redis.Options, addrs []string, first *atomic.Int32) (conn net.Conn, err error) {
	o.DialTimeout /= time.Duration(len(addrs))
	for range addrs {
		i := first.Load()
		addr := addrs[int(i)%len(addrs)]
		if o.TLSConfig != nil {
			o.TLSConfig = o.TLSConfig.Clone()
			o.TLSConfig.ServerName, _, _ = net.SplitHostPort(addr)
		}
		if conn, err = redis.NewDialer(&o)(ctx, "tcp", addr); err == nil {
			if err = ping(conn, o.DialTimeout); err == nil {
				return conn, nil
			}
			conn.Close()
		}
		first.CompareAndSwap(i, i+1)
	}
	return nil, err
}

// ping returns nil if the server answers. Before the login the answer may be an error reply.
func ping(conn net.Conn, timeout time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	for b := []byte{0}; b[0] != '\n'; {
		if _, err := io.ReadFull(conn, b); err != nil {
			return err
		}
	}
	return conn.SetDeadline(time.Time{})
}

// parsed has the options with the password, and the files that they are made of.
type parsed struct {
	*redis.Options
	files []string
}

func parseOptions(cmd *cobra.Command) (p parsed, err error) {
	settings, err := readSettings(cmd, connectionFlags)
	if err != nil {
		return p, err
	}
	for _, flag := range []string{passwordFileFlag, caFlag, certFlag, keyFlag} {
		p.files = append(p.files, settings[flag].value)
	}
	p.files = append(p.files, cmd.Flags().Lookup(configFlag).Value.String())
	u := settings[urlFlag]
	t, err := parseURL(cmp.Or(u.value, defaultURL))
	if err != nil {
		return p, Usagef("%s: %w", cmp.Or(u.where, "--"+urlFlag), err)
	}
	user, password, err := login(settings, t)
	if err != nil {
		return p, err
	}
	p.Options = &redis.Options{
		Network:                  t.network,
		Addr:                     t.addr,
		Username:                 user,
		Password:                 password,
		MaxRetries:               -1,
		DialTimeout:              dialTimeout,
		DialerRetries:            1,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	p.TLSConfig, err = tlsConfig(settings, t)
	return p, err
}

// login returns the user and the password. A login in the URL overrides the settings of weaker
// sources. For example, SIMBA_PASSWORD is not for the user of --url.
func login(settings map[string]setting, t target) (user, password string, err error) {
	name, file := settings[userFlag], settings[passwordFileFlag]
	word := setting{from: fromDefault}
	if v := os.Getenv(passwordVariable); v != "" {
		word = setting{v, fromEnvironment, passwordVariable}
	}
	if t.hasLogin {
		user, password = t.user, t.password
		u := settings[urlFlag]
		for _, s := range []*setting{&name, &file, &word} {
			if s.from > u.from {
				*s = setting{from: fromDefault}
			}
		}
	}
	if name.given() {
		user = name.value
	}
	switch {
	case file.given() && word.given() && file.from == word.from:
		return "", "", Usagef("%s and %s are both set; use one of them", word.where, file.where)
	case file.given() && file.from < word.from:
		if password, err = ReadPassword(file.value); err != nil {
			return "", "", Usagef("%s: %w", file.where, err)
		}
	case word.given():
		password = word.value
	}
	if user != "" && password == "" {
		return "", "", Usagef("user %s has no password; set --%s or %s", Printable(user), passwordFileFlag, passwordVariable)
	}
	return user, password, nil
}

// tlsConfig returns the configuration of TLS, nil without TLS.
func tlsConfig(settings map[string]setting, t target) (*tls.Config, error) {
	if !t.tls {
		for _, flag := range []string{caFlag, certFlag, keyFlag} {
			if s := settings[flag]; s.from == fromFlag {
				return nil, Usagef("%s needs TLS; use --%s %s", s.where, urlFlag, t.secure)
			}
		}
		return nil, nil
	}
	file := func(flag string) credentials.File {
		return credentials.File{Setting: cmp.Or(settings[flag].where, "--"+flag), Path: settings[flag].value}
	}
	c, _, err := credentials.TLS(file(caFlag), file(certFlag), file(keyFlag), t.host)
	if err != nil {
		return nil, Usagef("%s", Printable(err.Error()))
	}
	return c, nil
}
