package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A field is one row of the table from which flags, variables, keys of the file,
// --help and CONFIG GET are made.
type field struct {
	name    string // of the flag and of the key in the file
	kind    string // what a value looks like, with its unit
	initial string // the default, as a user would write it
	help    string
	secret  bool   // never shown
	engine  string // the only one that has a use for it, "" = all
	value   func(*config) flag.Value
}

const (
	engineEmbedded   = "embedded"
	engineRedis      = "redis"
	engineMySQL      = "mysql"
	engineZooKeeper  = "zookeeper"
	durabilityAlways = "always"
	durabilityAsync  = "async"
	durabilityMemory = "memory"
	authNo           = "no"
	authOptional     = "optional"
	authYes          = "yes"
	version12        = "1.2"
	version13        = "1.3"
	logText          = "text"
	logJSON          = "json"
)

var (
	engines      = []string{engineEmbedded, engineRedis, engineMySQL, engineZooKeeper}
	durabilities = []string{durabilityAlways, durabilityAsync, durabilityMemory}
	tlsAuths     = []string{authNo, authOptional, authYes}
	tlsVersions  = []string{version12, version13}
	logLevels    = []string{"debug", "info", "warn", "error"}
	logFormats   = []string{logText, logJSON}
)

var fields = []field{
	{
		name: "addr", kind: "host:port", initial: "127.0.0.1:7379",
		help:  "address to listen on; port 0 picks a free one; beyond loopback every user needs a password, or --insecure; empty, the default with --tls-addr, serves no plain text",
		value: func(c *config) flag.Value { return (*text)(&c.Addr) },
	},
	{
		name: "requirepass", kind: "password", secret: true,
		help:  "password that clients give with AUTH or HELLO; other users of this machine can see a flag, so prefer the file",
		value: func(c *config) flag.Value { return (*text)(&c.RequirePass) },
	},
	{
		name: "requirepass-file", kind: "path",
		help:  "file that holds the password",
		value: func(c *config) flag.Value { return (*text)(&c.RequirePassFile) },
	},
	{
		name: "aclfile", kind: "path",
		help:  "file of users and what each may do, in Redis' form; ACL LOAD reads it again",
		value: func(c *config) flag.Value { return (*text)(&c.ACLFile) },
	},
	{
		name: "insecure", kind: "true|false", initial: "false",
		help:  "serve other machines without a password",
		value: func(c *config) flag.Value { return (*boolean)(&c.Insecure) },
	},
	{
		name: "tls-addr", kind: "host:port",
		help:  "address to listen on for clients that speak TLS; beyond loopback it needs a password, --tls-auth-clients yes or --insecure",
		value: func(c *config) flag.Value { return (*text)(&c.TLSAddr) },
	},
	{
		name: "tls-cert-file", kind: "path",
		help:  "certificate of the server, PEM, followed by those between it and its authority; read again at SIGHUP",
		value: func(c *config) flag.Value { return (*text)(&c.TLSCertFile) },
	},
	{
		name: "tls-key-file", kind: "path",
		help:  "private key of the certificate, PEM",
		value: func(c *config) flag.Value { return (*text)(&c.TLSKeyFile) },
	},
	{
		name: "tls-ca-cert-file", kind: "path",
		help:  "certificates of the authorities that sign clients' certificates, PEM",
		value: func(c *config) flag.Value { return (*text)(&c.TLSCACertFile) },
	},
	{
		name: "tls-auth-clients", kind: strings.Join(tlsAuths, "|"), initial: authNo,
		help:  "whether a client that speaks TLS has to show a certificate; one that is shown has to be signed by --tls-ca-cert-file",
		value: func(c *config) flag.Value { return choice{&c.TLSAuthClients, tlsAuths} },
	},
	{
		name: "tls-min-version", kind: strings.Join(tlsVersions, "|"), initial: version12,
		help:  "oldest version of TLS that is spoken",
		value: func(c *config) flag.Value { return choice{&c.TLSMinVersion, tlsVersions} },
	},
	{
		name: "engine", kind: strings.Join(engines, "|"), initial: engineEmbedded,
		help:  "what keeps the mutexes: this server itself, or a store that several servers share",
		value: func(c *config) flag.Value { return choice{&c.Engine, engines} },
	},
	{
		name: "data-dir", kind: "path", initial: "./simba-data", engine: engineEmbedded,
		help:  "directory of the embedded engine; made when it is missing",
		value: func(c *config) flag.Value { return (*text)(&c.DataDir) },
	},
	{
		name: "durability", kind: strings.Join(durabilities, "|"), initial: durabilityAlways, engine: engineEmbedded,
		help:  "of the embedded engine: when a change is told: after its fsync; before it, and after a crash new grants wait for the longest lease that could be lost; or with no disk at all",
		value: func(c *config) flag.Value { return choice{&c.Durability, durabilities} },
	},
	{
		name: "redis-url", kind: "url", secret: true, engine: engineRedis,
		help:  "store of --engine redis: redis://user:password@host:6379/0, rediss:// for TLS, redis+sentinel://host:26379,…/name, redis+cluster://host:6379,…",
		value: func(c *config) flag.Value { return (*text)(&c.RedisURL) },
	},
	{
		name: "mysql-dsn", kind: "dsn", secret: true, engine: engineMySQL,
		help:  "store of --engine mysql: user:password@tcp(host:3306)/database",
		value: func(c *config) flag.Value { return (*text)(&c.MySQLDSN) },
	},
	{
		name: "mysql-migrate", kind: "true|false", initial: "false", engine: engineMySQL,
		help:  "make the table of --engine mysql if it is missing, and add the column fencing_token to an older one",
		value: func(c *config) flag.Value { return (*boolean)(&c.MySQLMigrate) },
	},
	{
		name: "mysql-poll", kind: "duration", initial: "0s", engine: engineMySQL,
		help:  "how often --engine mysql looks at a mutex that somebody waits for, one statement each time; 0 = once, when its lease ends",
		value: func(c *config) flag.Value { return (*duration)(&c.MySQLPoll) },
	},
	{
		name: "zookeeper-servers", kind: "host:port,…", engine: engineZooKeeper,
		help:  "store of --engine zookeeper; host:port,host:port/path keeps everything below that path",
		value: func(c *config) flag.Value { return (*text)(&c.ZooKeeperServers) },
	},
	{
		name: "zookeeper-auth", kind: "digest:user:password", secret: true, engine: engineZooKeeper,
		help:  "who --engine zookeeper is; the nodes that it makes are then for that user only",
		value: func(c *config) flag.Value { return (*text)(&c.ZooKeeperAuth) },
	},
	{
		name: "zookeeper-session-timeout", kind: "duration", initial: "10s", engine: engineZooKeeper,
		help:  "how long the ensemble keeps what a silent server holds; it may grant another time than it is asked for",
		value: func(c *config) flag.Value { return (*duration)(&c.ZooKeeperSessionTimeout) },
	},
	{
		name: "backend-timeout", kind: "duration", initial: "3s",
		help:  "how long a command may wait for the store of --engine redis, mysql or zookeeper",
		value: func(c *config) flag.Value { return (*duration)(&c.BackendTimeout) },
	},
	{
		name: "handoff-window", kind: "duration", initial: "1s",
		help:  "how long a free mutex is kept for a polling waiter that was told of its turn; 0 = free for all",
		value: func(c *config) flag.Value { return (*duration)(&c.HandoffWindow) },
	},
	{
		name: "queue-grace", kind: "duration", initial: "5s",
		help:  "how long a polling waiter keeps its place after the lease it last saw, or after its last request, whichever is later",
		value: func(c *config) flag.Value { return (*duration)(&c.QueueGrace) },
	},
	{
		name: "maxclients", kind: "number", initial: "10000",
		help:  "connections served at a time; WAIT may block three quarters of them",
		value: func(c *config) flag.Value { return (*number)(&c.MaxClients) },
	},
	{
		name: "maxmemory", kind: "bytes, or a number with kb, mb, gb", initial: "0",
		help:  "memory of all mutexes, queues and keys above which nobody new gets a mutex or a place in a queue, as with Redis' policy noeviction; 0 = no limit; the embedded engine only",
		value: func(c *config) flag.Value { return (*memory)(&c.MaxMemory) },
	},
	{
		name: "timeout", kind: "seconds or duration", initial: "0",
		help:  "a client that is idle for so long is disconnected, unless it is blocked or subscribed, or owns a SESSION lease; 0 = never",
		value: func(c *config) flag.Value { return (*seconds)(&c.Timeout) },
	},
	{
		name: "shutdown-timeout", kind: "duration", initial: "10s",
		help:  "how long a stop waits for replies to be taken before connections are cut",
		value: func(c *config) flag.Value { return (*duration)(&c.ShutdownTimeout) },
	},
	{
		name: "log-level", kind: strings.Join(logLevels, "|"), initial: "info",
		help:  "least severity that is logged; what is audited is logged with any",
		value: func(c *config) flag.Value { return choice{&c.LogLevel, logLevels} },
	},
	{
		name: "log-format", kind: strings.Join(logFormats, "|"), initial: logText,
		help:  "form of the log on standard error",
		value: func(c *config) flag.Value { return choice{&c.LogFormat, logFormats} },
	},
}

// fieldOf returns the field of that name, which there is.
func fieldOf(name string) field {
	return fields[slices.IndexFunc(fields, func(f field) bool { return f.name == name })]
}

// isInitial reports whether c has the default of the field.
func (f field) isInitial(c *config) bool {
	v := f.value(new(config))
	_ = v.Set(f.initial) // one that cannot be set, as that of a text without default, is the zero value
	return f.value(c).String() == v.String()
}

// configFlag is no field: the file that it names cannot name another.
const configFlag = "config"

// variable is the environment's name of a field.
func variable(name string) string {
	return "SIMBA_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// invocation is what the command line asks for.
type invocation struct {
	flags                map[string]string // those given, by name
	help, version, check bool
}

// parseArgs reads the command line. Its error is of type faults.
func parseArgs(args []string) (*invocation, error) {
	inv := &invocation{flags: make(map[string]string)}
	set := flag.NewFlagSet("simba-resp", flag.ContinueOnError)
	set.SetOutput(io.Discard) // main tells the error, --help prints its own page
	set.BoolVar(&inv.version, "version", false, "")
	set.BoolVar(&inv.check, "check-config", false, "")
	record := func(name string) func(string) error {
		return func(s string) error { inv.flags[name] = s; return nil }
	}
	set.Func(configFlag, "", record(configFlag))
	for _, f := range fields {
		if _, ok := f.value(new(config)).(*boolean); ok {
			set.BoolFunc(f.name, "", record(f.name))
		} else {
			set.Func(f.name, "", record(f.name))
		}
	}
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		inv.help = true
	case err != nil:
		return nil, faults{fmt.Errorf("%w (--help lists the flags)", err)}
	case set.NArg() > 0:
		return nil, faults{fmt.Errorf("unexpected argument '%s' (--help lists the flags)", set.Arg(0))}
	}
	return inv, nil
}

// help returns the page of --help.
func help() string {
	var b strings.Builder
	b.WriteString(`simba-resp: distributed locks and leader election for anything that talks to Redis

usage: simba-resp [flags]

A flag wins over its environment variable, that over the key of the same name in
the TOML file, that over the default. A duration is written as 1s, 500ms or 1h30m.

`)
	for _, f := range fields {
		initial := f.initial
		if initial == "" {
			initial = "none"
		}
		fmt.Fprintf(&b, "  --%s %s\n        %s\n        default %s, environment %s\n", f.name, f.kind, f.help, initial, variable(f.name))
	}
	fmt.Fprintf(&b, `  --%s path
        TOML file of settings, keys as the flags above
        default none, environment %s
  --check-config
        say what is wrong with the configuration, and do not serve
  --version
        print the version
  --help
        print this page
`, configFlag, variable(configFlag))
	return b.String()
}

type text string

func (v *text) String() string     { return string(*v) }
func (v *text) Set(s string) error { *v = text(s); return nil }

type boolean bool

func (v *boolean) String() string { return strconv.FormatBool(bool(*v)) }
func (v *boolean) Set(s string) error {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("'%s' is not true or false", s)
	}
	*v = boolean(b)
	return nil
}

type number int

func (v *number) String() string { return strconv.Itoa(int(*v)) }
func (v *number) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return fmt.Errorf("'%s' is not a whole number below 2147483648", s)
	}
	*v = number(n)
	return nil
}

type duration time.Duration

func (v *duration) String() string { return time.Duration(*v).String() }
func (v *duration) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("'%s' is not a duration such as 1s or 500ms", s)
	}
	*v = duration(d)
	return nil
}

// seconds is a duration that may also be a bare number, as Redis writes it.
type seconds time.Duration

func (v *seconds) String() string {
	return strconv.FormatInt(int64(time.Duration(*v)/time.Second), 10)
}

func (v *seconds) Set(s string) error {
	if n, err := strconv.ParseInt(s, 10, 32); err == nil {
		*v = seconds(time.Duration(n) * time.Second)
		return nil
	}
	return (*duration)(v).Set(s)
}

// memory is a number of bytes, or of a unit of redis.conf: k, m and g are thousands, kb, mb and gb are
// powers of 1,024.
type memory uint64

var memoryUnits = map[string]uint64{
	"": 1, "b": 1, "k": 1e3, "kb": 1 << 10, "m": 1e6, "mb": 1 << 20, "g": 1e9, "gb": 1 << 30,
}

// errNoMemory is in Redis' words.
var errNoMemory = errors.New("argument must be a memory value")

func (v *memory) String() string { return strconv.FormatUint(uint64(*v), 10) }

func (v *memory) Set(s string) error {
	digits := strings.TrimRight(s, "bkmgBKMG")
	n, err := strconv.ParseUint(digits, 10, 64)
	unit, known := memoryUnits[strings.ToLower(s[len(digits):])]
	if err != nil || !known || n > math.MaxUint64/unit {
		return errNoMemory
	}
	*v = memory(n * unit)
	return nil
}

type choice struct {
	value *string
	from  []string
}

// String has to work on the zero choice too, as package flag asks.
func (v choice) String() string {
	if v.value == nil {
		return ""
	}
	return *v.value
}

func (v choice) Set(s string) error {
	if !slices.Contains(v.from, s) {
		return fmt.Errorf("'%s' is not one of %s", s, strings.Join(v.from, ", "))
	}
	*v.value = s
	return nil
}
