package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/spf13/cobra"
)

// dialTimeout limits how long a command waits for a connection, including the TLS handshake.
const dialTimeout = 5 * time.Second

// silence discards the log that all clients of go-redis share. A command reports its errors itself.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(silence{}) }

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
// connect. Commands are not retried, because a second BREAK would end the next tenure. A caller
// whose commands block must set ReadTimeout.
//
// The options do not have the password: OnConnect logs in. go-redis would send a wrong password
// twice, by HELLO and by AUTH, and the server would count and delay both.
func Options(cmd *cobra.Command) (*redis.Options, error) {
	o, err := parseOptions(cmd)
	if err != nil {
		return nil, err
	}
	const resp3 = 3
	name, user, password := "simba-resp:"+cmd.Name(), o.Username, o.Password
	o.Password = ""
	o.OnConnect = func(ctx context.Context, c *redis.Conn) error {
		if password != "" {
			return c.Hello(ctx, resp3, user, password, name).Err()
		}
		// A user without the right to set a name can have other rights.
		_ = c.ClientSetName(ctx, name).Err()
		return nil
	}
	return o, nil
}

// parseOptions returns the options with the password.
func parseOptions(cmd *cobra.Command) (*redis.Options, error) {
	settings, err := readSettings(cmd, connectionFlags)
	if err != nil {
		return nil, err
	}
	u := settings[urlFlag]
	t, err := parseURL(cmp.Or(u.value, defaultURL))
	if err != nil {
		return nil, usagef("%s: %w", cmp.Or(u.where, "--"+urlFlag), err)
	}
	user, password, err := login(settings, t)
	if err != nil {
		return nil, err
	}
	o := &redis.Options{
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
	if o.TLSConfig, err = tlsConfig(settings, t); err != nil {
		return nil, err
	}
	return o, nil
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
		return "", "", usagef("%s and %s are both set; use one of them", word.where, file.where)
	case file.given() && file.from < word.from:
		if password, err = readPassword(file); err != nil {
			return "", "", err
		}
	case word.given():
		password = word.value
	}
	if user != "" && password == "" {
		return "", "", usagef("user %s has no password; set --%s or %s", Printable(user), passwordFileFlag, passwordVariable)
	}
	return user, password, nil
}

// readPassword reads the password from the file that a setting names, without a byte order mark and
// trailing line ends.
func readPassword(s setting) (string, error) {
	text, err := os.ReadFile(s.value)
	if err != nil {
		return "", usagef("%s: %w", s.where, fileError(err))
	}
	password := strings.TrimRight(strings.TrimPrefix(string(text), "\ufeff"), "\r\n")
	if password == "" {
		return "", usagef("%s: %s is empty", s.where, Printable(s.value))
	}
	return password, nil
}

// tlsConfig returns the configuration of TLS, nil without TLS.
func tlsConfig(settings map[string]setting, t target) (*tls.Config, error) {
	ca, cert, key := settings[caFlag], settings[certFlag], settings[keyFlag]
	if !t.tls {
		for _, s := range []setting{ca, cert, key} {
			if s.from == fromFlag {
				return nil, usagef("%s needs TLS; use --%s %s", s.where, urlFlag, t.secure)
			}
		}
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.host}
	if ca.value != "" {
		pem, err := os.ReadFile(ca.value)
		if err != nil {
			return nil, usagef("%s: %w", ca.where, fileError(err))
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("%s: %s has no PEM certificate", ca.where, Printable(ca.value))
		}
	}
	if (cert.value == "") != (key.value == "") {
		return nil, usagef("--%s and --%s are needed together", certFlag, keyFlag)
	}
	if cert.value != "" {
		pair, err := tls.LoadX509KeyPair(cert.value, key.value)
		if err != nil {
			return nil, usagef("%s: %w", cert.where, fileError(err))
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
