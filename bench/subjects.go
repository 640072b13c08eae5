package main

import (
	"fmt"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// subject is a server that is measured: simba-resp as somebody runs it, or what he would take instead.
type subject struct {
	name  string
	about string // how it is set up, for the report
	// most is with how many clients it is measured at most; 0 = as many as there are. Beyond, it
	// takes minutes, or refuses.
	most  int
	start func(*stage) (*site, error)
}

// site is a subject that runs.
type site struct {
	connect connector
	addr    string     // of one that speaks RESP, else ""
	proc    restarting // nil = it is not ours to restart
}

// restarting is a process with its data.
type restarting interface {
	Pid() int
	Kill()
	Start()
}

// The names that the aims speak of.
const (
	memory      = "simba-resp memory"
	async       = "simba-resp async"
	always      = "simba-resp always"
	onRedis     = "simba-resp on Redis"
	onMySQL     = "simba-resp on MariaDB"
	onZooKeeper = "simba-resp on ZooKeeper"
	redisMemory = "Redis"
	redisAlways = "Redis appendfsync always"
	mariaDB     = "MariaDB"
	zooKeeper   = "ZooKeeper"
	etcdServer  = "etcd"
)

var subjects = []subject{
	{name: memory, about: "`--durability memory`", start: embedded("memory")},
	{name: async, about: "`--durability async`", start: embedded("async")},
	{name: always, about: "`--durability always`, the default", start: embedded("always")},
	{name: redisMemory, about: "redis-server without a disk, the scripts of Simba's Redis backend", start: redisServer("--appendonly", "no")},
	{name: redisAlways, about: "the same with `appendonly yes`, `appendfsync always`", start: redisServer("--appendfsync", "always")},
	{name: onRedis, about: "`--engine redis` before a Redis without a disk", start: func(st *stage) (*site, error) {
		r := stores.Redis(st, "--appendonly", "no", "--maxclients", "20000")
		return simba(st, "--engine", "redis", "--redis-url", "redis://"+r.Addr), nil
	}},
	{name: mariaDB, about: "`innodb_flush_log_at_trx_commit=1`, the statements of Simba's JDBC backend", most: 64, start: func(st *stage) (*site, error) {
		connect, err := toMySQL(st, stores.MariaDB(st, durable...).Addr)
		return &site{connect: connect}, err
	}},
	{name: onMySQL, about: "`--engine mysql` before such a MariaDB", most: 256, start: func(st *stage) (*site, error) {
		m := stores.MariaDB(st, durable...)
		return simba(st, "--engine", "mysql", "--mysql-dsn", "root@tcp("+m.Addr+")/simba", "--mysql-migrate"), nil
	}},
	{name: zooKeeper, about: "one server, the lock recipe of Curator's latch", most: 64, start: func(st *stage) (*site, error) {
		return &site{connect: toZooKeeper(stores.SyncingZooKeeper(st).Addr)}, nil
	}},
	{name: onZooKeeper, about: "`--engine zookeeper` before such a ZooKeeper", most: 256, start: func(st *stage) (*site, error) {
		return simba(st, "--engine", "zookeeper", "--zookeeper-servers", stores.SyncingZooKeeper(st).Addr), nil
	}},
	{name: etcdServer, about: "one server, the lock of its Go client", most: 64, start: func(st *stage) (*site, error) {
		return &site{connect: toEtcd(stores.Etcd(st).Addr)}, nil
	}},
}

// durable has a MariaDB sync each commit, with the sizes that it has when it is installed.
var durable = []string{"--innodb-flush-log-at-trx-commit=1", "--innodb-log-file-size=96M", "--innodb-buffer-pool-size=128M"}

func embedded(durability string) func(*stage) (*site, error) {
	return func(st *stage) (*site, error) { return simba(st, "--durability", durability), nil }
}

// simba starts a simba-resp.
func simba(st *stage, args ...string) *site {
	s := simbatest.Start(st, append([]string{"--maxclients", "20000"}, args...)...)
	return &site{connect: toSimba(s.Addr), addr: s.Addr, proc: s}
}

func redisServer(args ...string) func(*stage) (*site, error) {
	return func(st *stage) (*site, error) {
		s := stores.Redis(st, append([]string{"--maxclients", "20000"}, args...)...)
		return &site{connect: toRedis(s.Addr), addr: s.Addr, proc: s}, nil
	}
}

// among returns the subjects of those names, in that order.
func among(names ...string) (some []subject) {
	for _, name := range names {
		for _, s := range subjects {
			if s.name == name {
				some = append(some, s)
			}
		}
	}
	if len(some) != len(names) {
		panic(fmt.Sprint("there is no such subject among ", names))
	}
	return some
}
