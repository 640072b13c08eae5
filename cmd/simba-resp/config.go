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
)

// config is everything that a user can set. The table in fields.go says for each
// of its fields the name, the unit, the default and what it means.
type config struct {
	File string // that it was read from, "" = none; no field of the table

	Addr string // "" = plain text is not served: the default where TLS is

	TLSAddr        string // "" = TLS is not served
	TLSCertFile    string
	TLSKeyFile     string
	TLSCACertFile  string
	TLSAuthClients string
	TLSMinVersion  string

	Engine           string
	RedisURL         string
	MySQLDSN         string
	MySQLMigrate     bool
	MySQLPoll        time.Duration
	ZooKeeperServers string
	ZooKeeperAuth    string
	BackendTimeout   time.Duration

	ZooKeeperSessionTimeout time.Duration

	DataDir    string
	Durability string

	RequirePass     string // after loadConfig also what RequirePassFile held
	RequirePassFile string
	ACLFile         string
	Insecure        bool

	HandoffWindow time.Duration
	QueueGrace    time.Duration

	MaxClients      int
	MaxMemory       uint64 // bytes
	Timeout         time.Duration
	ShutdownTimeout time.Duration

	LogLevel  string
	LogFormat string

	users *access.Accounts // of ACLFile and RequirePass; no field of the table
}

// faults are all that is wrong with a configuration, for the user to mend in one go.
type faults []error

func (f faults) Error() string {
	if len(f) == 1 {
		return f[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d faults in the configuration:", len(f))
	for _, err := range f {
		b.WriteString("\n  ")
		b.WriteString(err.Error())
	}
	return b.String()
}

// loadConfig settles every field by the first source that names it: flags, the
// environment, the file of --config, the default. Its error is of type faults.
func loadConfig(flags map[string]string, getenv func(string) string) (*config, error) {
	file := plain(flags[configFlag])
	if file == "" {
		file = plain(getenv(variable(configFlag)))
	}
	inFile, wrong := readFile(file)

	c := &config{File: file}
	given := make(map[string]bool)
	for _, f := range fields {
		text, source := f.initial, "default of "+f.name
		if s, ok := inFile[f.name]; ok {
			text, source, given[f.name] = s, f.name+" in "+file, true
		}
		if s := plain(getenv(variable(f.name))); s != "" {
			text, source, given[f.name] = s, variable(f.name), true
		}
		if s, ok := flags[f.name]; ok {
			text, source, given[f.name] = plain(s), "--"+f.name, true
		}
		if err := f.value(c).Set(text); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", source, err))
			// Validate then judges the other fields without a fault that only follows from this one.
			_ = f.value(c).Set(f.initial)
		}
	}
	if c.TLSAddr != "" && !given["addr"] {
		c.Addr = "" // who wants TLS gets no plain text that was not asked for, past passwords and certificates
	}

	if c.RequirePassFile != "" {
		if err := c.readPassword(); err != nil {
			wrong = append(wrong, fmt.Errorf("--%w", err))
		}
	}
	if len(c.RequirePass) <= maxPassword {
		wrong = append(wrong, c.openUsers()...)
	}
	for _, err := range append(c.Validate(), c.tlsFilesFaults()...) {
		wrong = append(wrong, fmt.Errorf("--%w", err))
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return c, nil
}

// plain returns a text without what editors, echo and "$(cat file)" leave around it: a byte order
// mark before it and line ends behind it.
func plain(text string) string {
	return strings.TrimRight(strings.TrimPrefix(text, "\ufeff"), "\r\n")
}

// readFile returns the keys of a TOML file as the texts that a flag would have.
func readFile(path string) (map[string]string, faults) {
	if path == "" {
		return nil, nil
	}
	var keys map[string]any
	if _, err := toml.DecodeFile(path, &keys); err != nil {
		return nil, faults{fmt.Errorf("--%s %s: %w", configFlag, path, err)}
	}
	var wrong faults
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

// readPassword takes the password from its file.
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
	if c.RequirePass = plain(string(b)); c.RequirePass == "" {
		return fmt.Errorf("%s: %s is empty", name, c.RequirePassFile)
	}
	return nil
}

// maxPassword is far below the limit of the wire for an argument before AUTH, so
// a password that is accepted here can also be sent.
const maxPassword = 512

// Validate returns every fault of c, each beginning with the name of its field; nil
// if there is none.
func (c *config) Validate() faults {
	var wrong faults
	fault := func(name, format string, args ...any) {
		wrong = append(wrong, fmt.Errorf(name+": "+format, args...))
	}

	c.tlsFaults(fault)
	switch open, err := opensToOthers(c.Addr); {
	case c.Addr == "":
		if c.TLSAddr == "" {
			fault("addr", "it is empty, and so is --tls-addr: nobody could connect")
		}
	case err != nil:
		fault("addr", "%w", err)
	case open && !c.judgesClients():
		fault("addr", "%s is open to other machines, or may be: set --requirepass-file or --requirepass or --aclfile, or --insecure to serve everybody", c.Addr)
	}
	if len(c.RequirePass) > maxPassword {
		fault("requirepass", "it has %d bytes, at most %d are allowed", len(c.RequirePass), maxPassword)
	}
	for _, store := range []struct{ flag, value, engine, example string }{
		{"redis-url", c.RedisURL, engineRedis, "redis://127.0.0.1:6379"},
		{"mysql-dsn", c.MySQLDSN, engineMySQL, "user:password@tcp(127.0.0.1:3306)/simba"},
		{"zookeeper-servers", c.ZooKeeperServers, engineZooKeeper, "127.0.0.1:2181"},
	} {
		if store.value == "" && c.Engine == store.engine {
			fault(store.flag, "--engine %s needs it, for example %s", store.engine, store.example)
		}
	}
	for _, f := range fields {
		if f.engine != "" && f.engine != c.Engine && !f.isInitial(c) && f.name != "data-dir" {
			// A store that is named and then not used would make two worlds of locks; so
			// would a durability that is a store's own affair. A directory that is not
			// used does no harm: the environment of a container may name it for all engines.
			fault(f.name, "it needs --engine %s", f.engine)
		}
	}
	if c.MaxMemory != 0 && c.Engine != engineEmbedded {
		fault("maxmemory", "it needs --engine %s: the store of --engine %s has a limit of its own", engineEmbedded, c.Engine)
	}
	if c.DataDir == "" && c.Engine == engineEmbedded && c.Durability != durabilityMemory {
		fault("data-dir", "it is empty")
	}
	if c.MySQLPoll != 0 && c.MySQLPoll < minMySQLPoll {
		fault("mysql-poll", "%v is too short, at least %v, or 0", c.MySQLPoll, minMySQLPoll)
	}
	if c.MaxClients < 1 {
		fault("maxclients", "%d is too small, at least 1", c.MaxClients)
	}
	if c.Timeout%time.Second != 0 {
		fault("timeout", "%v is not a whole number of seconds", c.Timeout)
	}
	for _, d := range []struct {
		name        string
		value       time.Duration
		least, most time.Duration
	}{
		{"handoff-window", c.HandoffWindow, 0, simba.MaxTTL},
		{"queue-grace", c.QueueGrace, 0, simba.MaxTTL},
		{"backend-timeout", c.BackendTimeout, time.Millisecond, maxTimeout},
		{"mysql-poll", c.MySQLPoll, 0, simba.MaxTTL},
		{"zookeeper-session-timeout", c.ZooKeeperSessionTimeout, 100 * time.Millisecond, time.Hour},
		{"timeout", c.Timeout, 0, maxTimeout},
		{"shutdown-timeout", c.ShutdownTimeout, 0, maxTimeout},
	} {
		if d.value < d.least || d.value > d.most {
			fault(d.name, "%v is out of range, %v to %v", d.value, d.least, d.most)
		}
	}
	return wrong
}

// maxTimeout is a year: longer is a mistake, or meant as "never", which is 0.
const maxTimeout = 365 * 24 * time.Hour

// minMySQLPoll keeps the looks at one mutex from being a load of their own.
const minMySQLPoll = 10 * time.Millisecond

// level is LogLevel for package slog, which knows every name that Validate accepts.
func (c *config) level() slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.LogLevel)); err != nil {
		panic(err)
	}
	return l
}

// opensToOthers reports whether who listens on addr can be reached from other
// machines. A name other than localhost counts as open, whatever it resolves to
// today.
func opensToOthers(addr string) (bool, error) {
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
