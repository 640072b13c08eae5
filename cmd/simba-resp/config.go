package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/access"
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
	var b strings.Builder
	fmt.Fprintf(&b, "%d errors in the configuration:", len(f))
	for _, err := range f {
		b.WriteString("\n  ")
		b.WriteString(err.Error())
	}
	return b.String()
}

// loadConfig sets every field from the first source that has it: flags, the environment, the file
// of --config, the default. Its error has type configErrors.
func loadConfig(flags map[string]string, getenv func(string) string) (*config, error) {
	file := trim(flags[configFlag])
	if file == "" {
		file = trim(getenv(variable(configFlag)))
	}
	inFile, wrong := readFile(file)

	c := &config{File: file}
	given := make(map[string]bool)
	for _, f := range fields {
		text, source := f.initial, "default of "+f.name
		if s, ok := inFile[f.name]; ok {
			text, source, given[f.name] = s, f.name+" in "+file, true
		}
		if s := trim(getenv(variable(f.name))); s != "" {
			text, source, given[f.name] = s, variable(f.name), true
		}
		if s, ok := flags[f.name]; ok {
			text, source, given[f.name] = trim(s), "--"+f.name, true
		}
		if f.secret && f.engine != "" && source == f.name+" in "+file {
			c.storeInFile += f.name + " "
		}
		if err := f.value(c).Set(text); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", source, err))
			// The default keeps Validate from reporting errors that only follow from this one.
			_ = f.value(c).Set(f.initial)
		}
	}
	if c.TLSAddr != "" && !given["addr"] {
		c.Addr = "" // with TLS, plain RESP must be enabled explicitly
	}

	if c.RequirePassFile != "" {
		if err := c.readPassword(); err != nil {
			wrong = append(wrong, fmt.Errorf("--%w", err))
		}
	}
	if len(c.RequirePass) <= maxPassword {
		wrong = append(wrong, c.openUsers()...)
	}
	for _, err := range append(c.Validate(), c.checkTLSFiles()...) {
		wrong = append(wrong, fmt.Errorf("--%w", err))
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return c, nil
}

// trim removes a leading byte order mark and trailing line ends, which editors and echo add.
func trim(text string) string {
	return strings.TrimRight(strings.TrimPrefix(text, "\ufeff"), "\r\n")
}

// readFile returns the values in a TOML file by key, as a user would write them for flags.
func readFile(path string) (map[string]string, configErrors) {
	if path == "" {
		return nil, nil
	}
	var keys map[string]any
	if _, err := toml.DecodeFile(path, &keys); err != nil {
		return nil, configErrors{fmt.Errorf("--%s %s: %w", configFlag, path, err)}
	}
	var wrong configErrors
	texts := make(map[string]string, len(keys))
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !slices.ContainsFunc(fields, func(f field) bool { return f.name == key }) {
			wrong = append(wrong, fmt.Errorf("%s: unknown key '%s'", path, key))
			continue
		}
		switch value := keys[key].(type) {
		case string, int64, bool:
			texts[key] = fmt.Sprint(value)
		default:
			wrong = append(wrong, fmt.Errorf("%s: '%s' must be a string, an integer, true or false", path, key))
		}
	}
	return texts, wrong
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

func (c *config) readPassword() error {
	const name = "requirepass-file"
	if c.RequirePass != "" {
		return errors.New(name + ": --requirepass is given too; use one of them")
	}
	b, err := os.ReadFile(c.RequirePassFile)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if bytes.HasPrefix(b, []byte("\xff\xfe")) || bytes.HasPrefix(b, []byte("\xfe\xff")) {
		return fmt.Errorf("%s: %s is in UTF-16: save it as UTF-8", name, c.RequirePassFile)
	}
	if c.RequirePass = trim(string(b)); c.RequirePass == "" {
		return fmt.Errorf("%s: %s is empty", name, c.RequirePassFile)
	}
	return nil
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
	switch open, err := isPublic(c.Addr); {
	case c.Addr == "":
		if c.TLSAddr == "" && c.UnixSocket == "" {
			refuse("addr", "it is empty, and so are --tls-addr and --unixsocket: no client could connect")
		}
	case err != nil:
		refuse("addr", "%w", err)
	case open && !c.hasAuth():
		refuse("addr", "%s is open to other machines: set --requirepass-file, --requirepass or --aclfile, or --insecure to accept all clients", c.Addr)
	}
	c.checkHTTP(refuse)
	c.checkPorts(refuse)
	if len(c.RequirePass) > maxPassword {
		refuse("requirepass", "it has %d bytes, at most %d are allowed", len(c.RequirePass), maxPassword)
	}
	for _, store := range []struct{ flag, value, engine, example string }{
		{"redis-url", c.RedisURL, engineRedis, "redis://127.0.0.1:6379"},
		{"mysql-dsn", c.MySQLDSN, engineMySQL, "user:password@tcp(127.0.0.1:3306)/simba"},
		{"postgres-url", c.PostgresURL, enginePostgres, "postgres://user:password@127.0.0.1:5432/simba"},
		{"zookeeper-servers", c.ZooKeeperServers, engineZooKeeper, "127.0.0.1:2181"},
	} {
		if store.value == "" && c.Engine == store.engine {
			refuse(store.flag, "--engine %s needs it, for example %s", store.engine, store.example)
		}
	}
	for _, f := range fields {
		if f.engine != "" && f.engine != c.Engine && !f.isInitial(c) && f.name != "data-dir" {
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

// checkPorts reports listeners that cannot open because another one has their port.
func (c *config) checkPorts(refuse func(name, format string, args ...any)) {
	listeners := []struct{ name, addr string }{{"addr", c.Addr}, {"tls-addr", c.TLSAddr}, {"http-addr", c.HTTPAddr}}
	for i, l := range listeners {
		for _, other := range listeners[:i] {
			if overlap(l.addr, other.addr) {
				refuse(l.name, "%s has the port of --%s %s; use another port", l.addr, other.name, other.addr)
			}
		}
	}
}

// overlap reports whether two addresses have a port and an IP address in common. On an unspecified
// address, such as 0.0.0.0, package net listens on all addresses of IPv4 and IPv6. Host names are
// not resolved.
func overlap(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	numberA, _ := strconv.Atoi(portA)
	numberB, _ := strconv.Atoi(portB)
	if errA != nil || errB != nil || numberA != numberB || numberA == 0 { // 0 is any free port
		return false
	}
	ip := func(host string) net.IP {
		switch host {
		case "":
			return net.IPv6unspecified
		case "localhost":
			return net.IPv4(127, 0, 0, 1)
		}
		return net.ParseIP(host)
	}
	ipA, ipB := ip(hostA), ip(hostB)
	return strings.EqualFold(hostA, hostB) || ipA.IsUnspecified() || ipB.IsUnspecified() || ipA != nil && ipA.Equal(ipB)
}
