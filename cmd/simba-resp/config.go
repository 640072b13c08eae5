package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/cli"
	"github.com/simba-resp/simba-resp/persist"
)

// config holds all settings. The table in fields.go has the name, unit, default and description of
// each.
type config struct {
	File string // the TOML file, "" = none; not in the table

	Addr string // "" = no plain RESP, the default with TLS

	UnixSocket     string // "" = none
	UnixSocketPerm uint32

	TLSAddr        string // "" = no TLS
	TLSCertFile    string
	TLSKeyFile     string
	TLSCACertFile  string
	TLSAuthClients string
	TLSMinVersion  string

	HTTPAddr       string // "" = no HTTP
	HTTPPprof      bool
	MetricsMutexes string

	Engine           string
	RedisURL         string
	MySQLDSN         string
	MySQLMigrate     bool
	MySQLPoll        time.Duration
	PostgresURL      string
	PostgresListen   string
	PostgresMigrate  bool
	ZooKeeperServers string
	ZooKeeperAuth    string
	BackendTimeout   time.Duration

	ZooKeeperSessionTimeout time.Duration

	DataDir       string
	Durability    string
	RecoveryDelay time.Duration

	Cluster           string // "" = a single server
	ClusterName       string
	ClusterCertFile   string
	ClusterKeyFile    string
	ClusterCACertFile string
	ClusterInsecure   bool
	ClusterElection   time.Duration
	ClusterHeartbeat  time.Duration

	ClusterSentinelAddr string // "" = none
	ClusterAnnounce     string

	RequirePass     string // loadConfig sets it to the content of RequirePassFile, if given
	RequirePassFile string
	ACLFile         string
	Insecure        bool

	HandoffWindow time.Duration
	QueueGrace    time.Duration

	History int // number of events

	LegacySimbaChannels bool

	MaxClients      int
	MaxMemory       uint64 // bytes
	Timeout         time.Duration
	Drain           time.Duration
	ShutdownTimeout time.Duration

	LogLevel  string
	LogFormat string

	storeInFile string // the settings with a login of a store that File has set, with a space after each; not in the table

	users *access.Accounts // of ACLFile and RequirePass; not in the table
}

// configErrors has all errors of a configuration.
type configErrors []error

func (f configErrors) ExitCode() int { return exitUsage }

func (f configErrors) Error() string {
	if len(f) == 1 {
		return f[0].Error()
	}
	text := fmt.Sprintf("%d errors in the configuration:", len(f))
	for _, err := range f {
		text += "\n  " + err.Error()
	}
	return text
}

// loadConfig sets every field from the first source that has it: flags, the environment, the file
// of --config, the default. Its error has type configErrors.
func loadConfig(flags map[string]string, getenv func(string) string) (*config, error) {
	file := cmp.Or(cli.Trim(flags[configFlag]), cli.Trim(getenv(cli.Variable(configFlag))))
	inFile, wrong := readFile(file)

	c := &config{File: file}
	given := make(map[string]bool)
	for _, f := range c.fields() {
		text, source := f.initial, "default of "+f.name
		if s, ok := inFile[f.name]; ok {
			text, source, given[f.name] = s, f.name+" in "+file, true
		}
		if s := cli.Trim(getenv(cli.Variable(f.name))); s != "" {
			text, source, given[f.name] = s, cli.Variable(f.name), true
		}
		if s, ok := flags[f.name]; ok {
			text, source, given[f.name] = cli.Trim(s), "--"+f.name, true
		}
		if f.secret && f.engine != "" && source == f.name+" in "+file {
			c.storeInFile += f.name + " "
		}
		if err := f.value.Set(text); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", source, err))
			// The default keeps Validate from reporting errors that only follow from this one.
			_ = f.value.Set(f.initial)
		}
	}
	if c.TLSAddr != "" && !given["addr"] {
		c.Addr = "" // with TLS, plain RESP must be enabled explicitly
	}

	if c.RequirePassFile != "" {
		if err := c.readPassword(); err != nil {
			wrong = append(wrong, fmt.Errorf("--requirepass-file: %w", err))
		}
	}
	if len(c.RequirePass) <= maxPassword {
		wrong = append(wrong, c.openUsers()...)
	}
	for _, err := range slices.Concat(c.Validate(), c.checkFiles()) {
		wrong = append(wrong, fmt.Errorf("--%w", err))
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return c, nil
}

// readFile returns the values in a TOML file by key, as a user would write them for flags.
func readFile(path string) (map[string]string, configErrors) {
	return cli.ReadFile(path, func(key string) bool {
		return slices.ContainsFunc(new(config).fields(), func(f field) bool { return f.name == key })
	})
}

// reread returns a function that reads the setting with the login of the store again from File. It
// returns nil if File has not set it.
func (c *config) reread(name string) func() (string, error) {
	if !strings.Contains(c.storeInFile, name+" ") {
		return nil
	}
	return func() (string, error) {
		now, wrong := readFile(c.File)
		if len(wrong) > 0 {
			return "", wrong
		}
		return now[name], nil
	}
}

func (c *config) readPassword() (err error) {
	if c.RequirePass != "" {
		return errors.New("--requirepass is given too; use one of them")
	}
	c.RequirePass, err = cli.ReadPassword(c.RequirePassFile)
	return err
}

// maxPassword is the maximum length of a password in bytes, far below the limit for an argument
// before AUTH.
const maxPassword = 512

// Validate returns all errors of c. Each begins with the name of its field.
func (c *config) Validate() configErrors {
	var wrong configErrors
	refuse := func(name, format string, args ...any) {
		wrong = append(wrong, fmt.Errorf(name+": "+format, args...))
	}

	c.checkTLS(refuse)
	c.checkUnixSocket(refuse)
	if c.Addr == "" && c.TLSAddr == "" && c.UnixSocket == "" {
		refuse("addr", "it is empty, and so are --tls-addr and --unixsocket: no client could connect")
	}
	c.checkHTTP(refuse)
	c.checkCluster(refuse)
	for _, l := range c.listeners() {
		certificates := ""
		if l.tls {
			certificates = "--tls-auth-clients yes, "
		}
		switch open, err := isPublic(l.addr); {
		case err != nil:
			refuse(l.name, "%w", err)
		case open && !c.hasAuth() && !c.needsCertificate(l):
			refuse(l.name, "%s is open to other machines: set %s--requirepass-file, --requirepass or --aclfile, or --insecure to accept all clients", l.addr, certificates)
		}
	}
	if len(c.RequirePass) > maxPassword {
		refuse("requirepass", "it has %d bytes, at most %d are allowed", len(c.RequirePass), maxPassword)
	}
	for _, f := range c.fields() {
		if f.needs != "" && !f.isInitial() && c.field(f.needs).isInitial() {
			refuse(f.name, "it needs --%s", f.needs)
		}
		if f.example != "" && f.isInitial() && f.engine == c.Engine {
			refuse(f.name, "--engine %s needs it, for example %s", f.engine, f.example)
		}
		if f.engine != "" && f.engine != c.Engine && !f.isInitial() && f.name != "data-dir" {
			// If the server ignored the address of a store, it would grant locks elsewhere. Then
			// two groups of servers might each grant the same lock. An unused data directory does
			// no harm, and a container's environment may name one for all engines.
			refuse(f.name, "it needs --engine %s", f.engine)
		}
	}
	if c.MaxMemory != 0 && c.Engine != engineEmbedded {
		refuse("maxmemory", "it needs --engine %s: the store of --engine %s has its own limit", engineEmbedded, c.Engine)
	}
	if c.DataDir == "" && c.Engine == engineEmbedded && c.Durability != durabilityMemory {
		refuse("data-dir", "it is empty")
	}
	if c.MySQLPoll != 0 && c.MySQLPoll < minMySQLPoll {
		refuse("mysql-poll", "%v is too short, at least %v, or 0", c.MySQLPoll, minMySQLPoll)
	}
	if c.History < 1000 || c.History > 1_000_000 {
		refuse("history", "%d is out of range, 1000 to 1000000", c.History)
	}
	if c.MaxClients < 1 {
		refuse("maxclients", "%d is too small, at least 1", c.MaxClients)
	}
	if c.Timeout%time.Second != 0 {
		refuse("timeout", "%v is not a whole number of seconds", c.Timeout)
	}
	for _, d := range []struct {
		name        string
		value       time.Duration
		least, most time.Duration
	}{
		{"handoff-window", c.HandoffWindow, 0, simba.MaxTTL},
		{"queue-grace", c.QueueGrace, 0, simba.MaxTTL},
		{"recovery-delay", c.RecoveryDelay, 0, persist.MaxRecoveryDelay},
		{"backend-timeout", c.BackendTimeout, time.Millisecond, maxTimeout},
		{"mysql-poll", c.MySQLPoll, 0, simba.MaxTTL},
		{"zookeeper-session-timeout", c.ZooKeeperSessionTimeout, 100 * time.Millisecond, time.Hour},
		{"timeout", c.Timeout, 0, maxTimeout},
		{"drain", c.Drain, 0, maxTimeout},
		{"shutdown-timeout", c.ShutdownTimeout, 0, maxTimeout},
	} {
		if d.value < d.least || d.value > d.most {
			refuse(d.name, "%v is out of range, %v to %v", d.value, d.least, d.most)
		}
	}
	return wrong
}

// maxTimeout is a year. A longer timeout is a mistake, or means "never", which is written 0.
const maxTimeout = 365 * 24 * time.Hour

// minMySQLPoll bounds the load of polling one mutex.
const minMySQLPoll = 10 * time.Millisecond

// level returns LogLevel for package slog, which knows every name in logLevels.
func (c *config) level() slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.LogLevel)); err != nil {
		panic(err)
	}
	return l
}

// listener is a TCP listener of the configuration.
type listener struct {
	name, addr string
	tls        bool
}

func (c *config) listeners() []listener {
	all := []listener{{"addr", c.Addr, false}, {"tls-addr", c.TLSAddr, true}, {"http-addr", c.HTTPAddr, c.TLSAddr != ""}, {"cluster-sentinel-addr", c.ClusterSentinelAddr, c.onlyTLS()}}
	return slices.DeleteFunc(all, func(l listener) bool { return l.addr == "" })
}

// onlyTLS reports whether the server has TLS, and no port without it.
func (c *config) onlyTLS() bool { return c.Addr == "" && c.TLSAddr != "" }

// needsCertificate reports whether every client of the listener must present a certificate.
func (c *config) needsCertificate(l listener) bool { return l.tls && c.TLSAuthClients == authYes }

// isPublic reports whether other machines can reach a listener on addr. Any host name but localhost
// counts as public, because its address may change.
func isPublic(addr string) (bool, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false, fmt.Errorf("'%s' is not host:port", addr)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false, fmt.Errorf("port '%s' is not a number from 0 to 65535", port)
	}
	if host == "localhost" {
		return false, nil
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback(), nil
}
