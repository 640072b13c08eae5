package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// field is one setting of a config. The flags, the environment variables, the keys of the file,
// --help and CONFIG GET are generated from the table of fields.
type field struct {
	name    string     // of the flag and of the key in the file
	kind    string     // form of a value, with its unit
	initial string     // default, as a user would write it
	help    string     // sentences for --help
	secret  bool       // the value is never shown
	engine  string     // the only engine that uses it, "" = all
	example string     // a value, if its engine cannot do without one
	needs   string     // a setting without which it has no effect, "" = none
	value   flag.Value // in the config
}

const (
	engineEmbedded   = "embedded"
	engineRedis      = "redis"
	engineMySQL      = "mysql"
	enginePostgres   = "postgres"
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
	engines      = []string{engineEmbedded, engineRedis, engineMySQL, enginePostgres, engineZooKeeper}
	durabilities = []string{durabilityAlways, durabilityAsync, durabilityMemory}
	tlsAuths     = []string{authNo, authOptional, authYes}
	tlsVersions  = []string{version12, version13}
	logLevels    = []string{"debug", "info", "warn", "error"}
	logFormats   = []string{logText, logJSON}
)

// fields returns the table of settings, with the values of c.
func (c *config) fields() []field {
	return []field{
		{
			name: "addr", kind: "host:port", initial: "127.0.0.1:7379", value: (*text)(&c.Addr),
			help: "Address for clients without TLS. Port 0 picks a free port. Outside loopback every user needs a password, or --insecure must be set. If --tls-addr is set, the default is empty, and the server accepts only TLS.",
		},
		{
			name: "unixsocket", kind: "path", value: (*text)(&c.UnixSocket),
			help: "Unix socket for clients of this machine, without TLS. The permission of the file protects it, so it needs no password. The server removes the file when it stops.",
		},
		{
			name: "unixsocketperm", kind: "octal number", initial: "700", needs: "unixsocket", value: (*permission)(&c.UnixSocketPerm),
			help: "Permission of the unix socket, in octal as for chmod. A client needs the right to write. 0 = as the umask says, which is Redis' default.",
		},
		{
			name: "requirepass", kind: "password", secret: true, value: (*text)(&c.RequirePass),
			help: "Password of the default user. Other users of this machine can read a flag, so prefer --requirepass-file.",
		},
		{
			name: "requirepass-file", kind: "path", value: (*text)(&c.RequirePassFile),
			help: "File that contains the password of the default user.",
		},
		{
			name: "aclfile", kind: "path", value: (*text)(&c.ACLFile),
			help: "File of users and their rules, in the format of Redis' aclfile. ACL LOAD reads it again.",
		},
		{
			name: "insecure", kind: "true|false", initial: "false", value: (*boolean)(&c.Insecure),
			help: "Serve other machines without a password.",
		},
		{
			name: "tls-addr", kind: "host:port", value: (*text)(&c.TLSAddr),
			help: "Address for clients that use TLS. Outside loopback it needs a password, --tls-auth-clients yes or --insecure.",
		},
		{
			name: "tls-cert-file", kind: "path", needs: "tls-addr", value: (*text)(&c.TLSCertFile),
			help: "Server certificate in PEM, followed by its intermediate certificates. SIGHUP reads it again.",
		},
		{
			name: "tls-key-file", kind: "path", needs: "tls-addr", value: (*text)(&c.TLSKeyFile),
			help: "Private key of the server certificate, in PEM. SIGHUP reads it again.",
		},
		{
			name: "tls-ca-cert-file", kind: "path", needs: "tls-addr", value: (*text)(&c.TLSCACertFile),
			help: "Certificates of the authorities that sign client certificates, in PEM. SIGHUP reads it again.",
		},
		{
			name: "tls-auth-clients", kind: strings.Join(tlsAuths, "|"), initial: authNo, needs: "tls-addr", value: choice{&c.TLSAuthClients, tlsAuths},
			help: "Certificates of TLS clients. no = the server asks for none, optional = a client may present one, yes = every client must. The server verifies certificates with --tls-ca-cert-file.",
		},
		{
			name: "tls-min-version", kind: strings.Join(tlsVersions, "|"), initial: version12, needs: "tls-addr", value: choice{&c.TLSMinVersion, tlsVersions},
			help: "Oldest version of TLS that the server accepts.",
		},
		{
			name: "http-addr", kind: "host:port", value: (*text)(&c.HTTPAddr),
			help: "Address for metrics and health checks over HTTP: /metrics, /livez, /readyz and, for members of a cluster, /leader. With --tls-addr it serves HTTPS with the same certificate and --tls-auth-clients. Outside loopback it needs the same as --addr, or as --tls-addr.",
		},
		{
			name: "http-pprof", kind: "true|false", initial: "false", needs: "http-addr", value: (*boolean)(&c.HTTPPprof),
			help: "Serve profiles of the process at /debug/pprof/ of --http-addr, to users who may run CONFIG GET.",
		},
		{
			name: "metrics-mutexes", kind: "glob,…", needs: "http-addr", value: (*text)(&c.MetricsMutexes),
			help: "Mutexes that have metrics of their own, as globs between commas. At most 200 mutexes have them. With an asterisk, each scrape reads the list of all mutexes.",
		},
		{
			name: "engine", kind: strings.Join(engines, "|"), initial: engineEmbedded, value: choice{&c.Engine, engines},
			help: "Where mutexes are kept: in this server (embedded), or in a store that several servers share.",
		},
		{
			name: "data-dir", kind: "path", initial: "./simba-data", engine: engineEmbedded, value: (*text)(&c.DataDir),
			help: "Data directory of the embedded engine. The server creates it if it is missing.",
		},
		{
			name: "durability", kind: strings.Join(durabilities, "|"), initial: durabilityAlways, engine: engineEmbedded, value: choice{&c.Durability, durabilities},
			help: "always: reply after fsync. async: reply before fsync, delay new grants after a crash. memory: no disk. Embedded engine only.",
		},
		{
			name: "recovery-delay", kind: "duration", initial: "0s", engine: engineEmbedded, value: (*duration)(&c.RecoveryDelay),
			help: "How long a server with a new data directory grants nothing, from its first start. If the disk is lost, set it to the longest ttl + transition that any program asks for. A data directory that exists ignores it. With --durability memory every start waits.",
		},
		{
			name: "cluster", kind: "name=host:port,…", engine: engineEmbedded, value: (*text)(&c.Cluster),
			help: "Members of a cluster: servers that keep the same mutexes and survive the loss of one of them. Each has a name and an address for the other members. Three members survive the loss of one, five of two. All members have the same list.",
		},
		{
			name: "cluster-name", kind: "name", engine: engineEmbedded, needs: "cluster", value: (*text)(&c.ClusterName),
			help: "Name of this server in --cluster.",
		},
		{
			name: "cluster-cert-file", kind: "path", engine: engineEmbedded, needs: "cluster", value: (*text)(&c.ClusterCertFile),
			help: "Certificate of this member in PEM, followed by its intermediate certificates. It must name the host of the member in --cluster, and be valid for servers and for clients.",
		},
		{
			name: "cluster-key-file", kind: "path", engine: engineEmbedded, needs: "cluster", value: (*text)(&c.ClusterKeyFile),
			help: "Private key of --cluster-cert-file, in PEM.",
		},
		{
			name: "cluster-ca-cert-file", kind: "path", engine: engineEmbedded, needs: "cluster", value: (*text)(&c.ClusterCACertFile),
			help: "Certificates of the authorities that sign the members' certificates, in PEM. Whoever has a certificate of them can act as a member.",
		},
		{
			name: "cluster-insecure", kind: "true|false", initial: "false", engine: engineEmbedded, needs: "cluster", value: (*boolean)(&c.ClusterInsecure),
			help: "Let members connect to each other without TLS outside loopback. Then whoever reaches the address of a member can act as a member.",
		},
		{
			name: "cluster-election", kind: "duration", initial: "1s", engine: engineEmbedded, needs: "cluster", value: (*duration)(&c.ClusterElection),
			help: "How long a member hears nothing from the leader before it asks to be elected, at least five times --cluster-heartbeat. The real time is one to two times as long. All members need the same value.",
		},
		{
			name: "cluster-heartbeat", kind: "duration", initial: "100ms", engine: engineEmbedded, needs: "cluster", value: (*duration)(&c.ClusterHeartbeat),
			help: "How often the leader sends a sign of life. All members need the same value.",
		},
		{
			name: "cluster-sentinel-addr", kind: "host:port", engine: engineEmbedded, needs: "cluster-announce", value: (*text)(&c.ClusterSentinelAddr),
			help: "Address at which clients of Redis Sentinel find the leader, as the master named simba. The member answers by itself, also without a leader. It uses TLS if the server accepts only TLS. Outside loopback it needs the same as --addr, or as --tls-addr. All members need the same port.",
		},
		{
			name: "cluster-announce", kind: "name=host:port,…", engine: engineEmbedded, needs: "cluster", value: (*text)(&c.ClusterAnnounce),
			help: "Addresses at which clients reach the members of --cluster, for --cluster-sentinel-addr. If the server accepts only TLS, its certificate must be valid for its own host here. All members have the same list.",
		},
		{
			name: "redis-url", kind: "url", secret: true, engine: engineRedis, example: "redis://127.0.0.1:6379", value: (*text)(&c.RedisURL),
			help: "Store of --engine redis: redis://user:password@host:6379/0, rediss:// for TLS, redis+sentinel://host:26379,…/name or redis+cluster://host:6379,…",
		},
		{
			name: "mysql-dsn", kind: "dsn", secret: true, engine: engineMySQL, example: "user:password@tcp(127.0.0.1:3306)/simba", value: (*text)(&c.MySQLDSN),
			help: "Store of --engine mysql: user:password@tcp(host:3306)/database",
		},
		{
			name: "mysql-migrate", kind: "true|false", initial: "false", engine: engineMySQL, value: (*boolean)(&c.MySQLMigrate),
			help: "Create the table of --engine mysql if it is missing, and add the column fencing_token to a table of Simba before 3.3.",
		},
		{
			name: "mysql-poll", kind: "duration", initial: "0s", engine: engineMySQL, value: (*duration)(&c.MySQLPoll),
			help: "How often --engine mysql polls a mutex that has waiters, with one statement each time. 0 = once, when its lease ends.",
		},
		{
			name: "postgres-url", kind: "url", secret: true, engine: enginePostgres, example: "postgres://user:password@127.0.0.1:5432/simba", value: (*text)(&c.PostgresURL),
			help: "Store of --engine postgres, as psql accepts it: postgres://user:password@host:5432/database?sslmode=verify-full. It may name several hosts.",
		},
		{
			name: "postgres-listen-url", kind: "url", secret: true, engine: enginePostgres, value: (*text)(&c.PostgresListen),
			help: "Where --engine postgres listens for changes by other servers. Set it to the database itself if --postgres-url leads to PgBouncer in transaction mode. The default is --postgres-url.",
		},
		{
			name: "postgres-migrate", kind: "true|false", initial: "false", engine: enginePostgres, value: (*boolean)(&c.PostgresMigrate),
			help: "Create the table and the sequence of --engine postgres if they are missing.",
		},
		{
			name: "zookeeper-servers", kind: "host:port,…", engine: engineZooKeeper, example: "127.0.0.1:2181", value: (*text)(&c.ZooKeeperServers),
			help: "Store of --engine zookeeper. A path behind the last server is the parent of all nodes: host:port,host:port/path.",
		},
		{
			name: "zookeeper-auth", kind: "digest:user:password", secret: true, engine: engineZooKeeper, value: (*text)(&c.ZooKeeperAuth),
			help: "Credentials of --engine zookeeper. Only this user can access the nodes that the server creates.",
		},
		{
			name: "zookeeper-session-timeout", kind: "duration", initial: "30s", engine: engineZooKeeper, value: (*duration)(&c.ZooKeeperSessionTimeout),
			help: "How long the ensemble keeps the leases of a server that it cannot reach. The longest lease is half of it. The ensemble may choose another value.",
		},
		{
			name: "backend-timeout", kind: "duration", initial: "3s", value: (*duration)(&c.BackendTimeout),
			help: "How long a command may wait for the store of --engine redis, mysql, postgres or zookeeper.",
		},
		{
			name: "handoff-window", kind: "duration", initial: "1s", value: (*duration)(&c.HandoffWindow),
			help: "How long a free mutex stays reserved for a polling waiter after its notification. 0 = no reservation.",
		},
		{
			name: "queue-grace", kind: "duration", initial: "5s", value: (*duration)(&c.QueueGrace),
			help: "How long a polling waiter keeps its queue entry after its last request, or after the lease that it last saw, whichever is later. A blocked waiter whose connection breaks keeps its entry for this time too, counted from then.",
		},
		{
			name: "legacy-simba-channels", kind: "true|false", initial: "false", value: (*boolean)(&c.LegacySimbaChannels),
			help: "Also notify contenders of Simba before 3.0.2, on channels without braces. This triggers faults of these versions. Engines embedded and redis only.",
		},
		{
			name: "history", kind: "number", initial: "10000", value: (*number)(&c.History),
			help: "How many events the server keeps for SIMBA.HISTORY, of all mutexes together, from 1000 to 1000000. An event takes about 200 bytes.",
		},
		{
			name: "maxclients", kind: "number", initial: "10000", value: (*number)(&c.MaxClients),
			help: "Maximum number of connections. WAIT without VIA may block three quarters of them.",
		},
		{
			name: "maxmemory", kind: "bytes, or a number with kb, mb, gb", initial: "0", value: (*memory)(&c.MaxMemory),
			help: "Limit for the memory of all mutexes, queues and keys. Above it the server refuses new locks and queue entries, as Redis does with noeviction. The waiters of one mutex may take half of it. 0 = no limit. Embedded engine only.",
		},
		{
			name: "timeout", kind: "seconds or duration", initial: "0", value: (*seconds)(&c.Timeout),
			help: "Close a client that is idle for this long, unless it is blocked, subscribed, or owns a SESSION lease. 0 = never.",
		},
		{
			name: "drain", kind: "duration", initial: "0s", value: (*duration)(&c.Drain),
			help: "How long the server still serves after a signal to stop, while /readyz fails. In this time load balancers send new clients elsewhere. A second signal ends it.",
		},
		{
			name: "shutdown-timeout", kind: "duration", initial: "10s", value: (*duration)(&c.ShutdownTimeout),
			help: "How long a stop waits until clients have read their replies, before it closes their connections.",
		},
		{
			name: "log-level", kind: strings.Join(logLevels, "|"), initial: "info", value: choice{&c.LogLevel, logLevels},
			help: "Lowest severity that is logged. Audit lines are always logged.",
		},
		{
			name: "log-format", kind: strings.Join(logFormats, "|"), initial: logText, value: choice{&c.LogFormat, logFormats},
			help: "Format of the log on standard error.",
		},
	}
}

// field returns the field of that name, which must exist.
func (c *config) field(name string) field {
	all := c.fields()
	return all[slices.IndexFunc(all, func(f field) bool { return f.name == name })]
}

// isInitial reports whether the field has its default.
func (f field) isInitial() bool {
	initial := new(config).field(f.name)
	_ = initial.value.Set(f.initial) // fails for a choice without default, which stays the zero value
	return f.value.String() == initial.value.String()
}

// configFlag is not a field: a file cannot name another file.
const configFlag = "config"

// wrap breaks a text into lines of at most 100 columns, with the indentation of --help.
func wrap(text string) string {
	const indent, columns = "        ", 100
	var b strings.Builder
	line := indent
	for i, word := range strings.Fields(text) {
		if i > 0 && utf8.RuneCountInString(line+" "+word) > columns {
			b.WriteString(line + "\n")
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	return b.String() + line + "\n"
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

// seconds is a duration that may also be a bare number of seconds, as in Redis.
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

// memory is a number of bytes, with an optional unit as in redis.conf. k, m and g are powers of
// 1,000. kb, mb and gb are powers of 1,024.
type memory uint64

var memoryUnits = map[string]uint64{
	"": 1, "b": 1, "k": 1e3, "kb": 1 << 10, "m": 1e6, "mb": 1 << 20, "g": 1e9, "gb": 1 << 30,
}

// errNoMemory has the text of Redis.
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

// String works on the zero choice too, as package flag requires.
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
