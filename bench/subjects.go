package main

import (
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// subject is a measured server: simba-resp in one configuration, or an alternative.
type subject struct {
	name  string
	about string // configuration, for the page
	group string // what a crash can lose
	start func(*testbed) (*site, error)
}

const (
	inMemory     = "In memory: a crash of the process or of the machine loses the locks"
	onDiskSoon   = "On disk soon: after a crash, grants pause until lost leases have ended"
	onDiskBefore = "On disk before the reply: a crash loses nothing that was acknowledged"
)

type site struct {
	connect   connector
	addr      string   // "" if the subject does not speak RESP
	flags     []string // of a simba-resp
	program   string   // see testbed.program
	processes processes
}

const (
	memory      = "simba-resp memory"
	async       = "simba-resp async"
	always      = "simba-resp always"
	onRedis     = "simba-resp on Redis"
	onMySQL     = "simba-resp on MariaDB"
	onPostgres  = "simba-resp on PostgreSQL"
	onZooKeeper = "simba-resp on ZooKeeper"
	redisMemory = "Redis without a disk"
	redisAlways = "Redis appendfsync always"
	mariaDB     = "MariaDB"
	zooKeeper   = "ZooKeeper"
	etcdServer  = "etcd"
)

var subjects = []subject{
	{name: memory, group: inMemory, about: "`--durability memory`", start: embedded("memory")},
	{name: redisMemory, group: inMemory, about: "redis-server with `appendonly no`, the scripts of Simba's Redis backend", start: redisServer("--appendonly", "no")},
	{name: onRedis, group: inMemory, about: "`--engine redis` before a Redis without a disk", start: func(tb *testbed) (*site, error) {
		r := stores.Redis(tb, "--appendonly", "no", "--maxclients", "20000")
		return simba(tb, r.Pid(), "--engine", "redis", "--redis-url", "redis://"+r.Addr), nil
	}},
	{name: async, group: onDiskSoon, about: "`--durability async`", start: embedded("async")},
	{name: always, group: onDiskBefore, about: "`--durability always`, the default", start: embedded("always")},
	{name: redisAlways, group: onDiskBefore, about: "redis-server with `appendfsync always`, the same scripts", start: redisServer("--appendfsync", "always")},
	{name: mariaDB, group: onDiskBefore, about: "`innodb_flush_log_at_trx_commit=1`, the statements of Simba's JDBC backend", start: func(tb *testbed) (*site, error) {
		m := stores.MariaDB(tb, durable...)
		connect, err := toMySQL(tb, m.Addr)
		return &site{connect: connect, processes: processes{store: m.Pid()}}, err
	}},
	{name: onMySQL, group: onDiskBefore, about: "`--engine mysql` before such a MariaDB", start: func(tb *testbed) (*site, error) {
		m := stores.MariaDB(tb, durable...)
		return simba(tb, m.Pid(), "--engine", "mysql", "--mysql-dsn", "root@tcp("+m.Addr+")/simba", "--mysql-migrate"), nil
	}},
	{name: onPostgres, group: onDiskBefore, about: "`--engine postgres` before a PostgreSQL with its default settings", start: func(tb *testbed) (*site, error) {
		p := stores.Postgres(tb, "-c", "shared_buffers=128MB", "-c", "max_wal_size=1GB") // its defaults
		return simba(tb, p.Pid(), "--engine", "postgres", "--postgres-url", stores.PostgresURL(p.Addr), "--postgres-migrate"), nil
	}},
	{name: zooKeeper, group: onDiskBefore, about: "one server, the lock recipe of Curator's latch", start: func(tb *testbed) (*site, error) {
		z := stores.SyncingZooKeeper(tb)
		return &site{connect: toZooKeeper(z.Addr), processes: processes{store: z.Pid()}}, nil
	}},
	{name: onZooKeeper, group: onDiskBefore, about: "`--engine zookeeper` before such a ZooKeeper", start: func(tb *testbed) (*site, error) {
		z := stores.SyncingZooKeeper(tb)
		return simba(tb, z.Pid(), "--engine", "zookeeper", "--zookeeper-servers", z.Addr, "--zookeeper-session-timeout", "1h"), nil
	}},
	{name: etcdServer, group: onDiskBefore, about: "one server, the lock of its Go client", start: func(tb *testbed) (*site, error) {
		e := stores.Etcd(tb)
		return &site{connect: toEtcd(e.Addr), processes: processes{store: e.Pid()}}, nil
	}},
}

func subjectNames() (names []string) {
	for _, s := range subjects {
		names = append(names, s.name)
	}
	return names
}

// durable are flags of a MariaDB that syncs each commit. The two sizes are defaults of MariaDB.
var durable = []string{"--innodb-flush-log-at-trx-commit=1", "--innodb-log-file-size=96M", "--innodb-buffer-pool-size=128M"}

func embedded(durability string) func(*testbed) (*site, error) {
	return func(tb *testbed) (*site, error) { return simba(tb, 0, "--durability", durability), nil }
}

// simba starts a simba-resp. store is the process id of the store that it uses; 0 = none.
func simba(tb *testbed, store int, args ...string) *site {
	s := simbatest.New(tb, append([]string{"--maxclients", "20000"}, args...)...)
	if tb.program != "" {
		s.Command = []string{tb.program}
	}
	s.Start()
	return &site{connect: toSimba(s.Addr), addr: s.Addr, flags: args, program: tb.program, processes: processes{server: s.Pid(), store: store}}
}

func redisServer(args ...string) func(*testbed) (*site, error) {
	return func(tb *testbed) (*site, error) {
		s := stores.Redis(tb, append([]string{"--maxclients", "20000"}, args...)...)
		return &site{connect: toRedis(s.Addr), addr: s.Addr, processes: processes{store: s.Pid()}}, nil
	}
}
