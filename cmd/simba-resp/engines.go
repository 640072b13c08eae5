package main

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/mysql"
	"github.com/simba-resp/simba-resp/backends/postgres"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/backends/redis"
	"github.com/simba-resp/simba-resp/backends/zookeeper"
	"github.com/simba-resp/simba-resp/cluster"
	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/persist"
)

// liveBackend is a backend whose windows can change at run time.
type liveBackend interface {
	simba.Backend
	SetHandoffWindow(time.Duration)
	SetQueueGrace(time.Duration)
}

func (a *app) openEngine(ctx context.Context, n simba.Notices) error {
	switch a.cfg.Engine {
	case engineRedis:
		return a.useStore(redis.Open(ctx, a.redisOptions(n)))
	case engineMySQL:
		return a.useStore(mysql.Open(ctx, a.mysqlOptions(n)))
	case enginePostgres:
		return a.useStore(postgres.Open(ctx, a.postgresOptions(n)))
	case engineZooKeeper:
		b, err := zookeeper.Open(ctx, a.zookeeperOptions(n))
		if err == nil {
			a.longest = b.LongestLease
		}
		return a.useStore(b, err)
	default:
		if a.cfg.Cluster != "" {
			return a.openReplica(n)
		}
		return a.openEmbedded(n)
	}
}

// storeBackend is the backend of a store engine.
type storeBackend interface {
	liveBackend
	Faults() []proxy.Fault
	Close() error
}

// useStore uses the result of the function that opens a store engine.
func (a *app) useStore(b storeBackend, err error) error {
	if err != nil {
		return err
	}
	a.engine, a.faults = b, b.Faults
	a.undo = append(a.undo, func(context.Context) error { return b.Close() })
	return nil
}

func (a *app) storeOptions(n simba.Notices) proxy.Options {
	return proxy.Options{
		Notices: n, Logger: a.log.Logger, Timeout: a.cfg.BackendTimeout,
		HandoffWindow: a.cfg.HandoffWindow, QueueGrace: a.cfg.QueueGrace, History: a.cfg.History,
	}
}

func (a *app) redisOptions(n simba.Notices) redis.Options {
	return redis.Options{
		Options: a.storeOptions(n), URL: a.cfg.RedisURL, Reread: a.cfg.reread("redis-url"), PlainChannels: a.cfg.LegacySimbaChannels,
	}
}

func (a *app) mysqlOptions(n simba.Notices) mysql.Options {
	o := mysql.Options{
		Options: a.storeOptions(n), DSN: a.cfg.MySQLDSN, Reread: a.cfg.reread("mysql-dsn"), Migrate: a.cfg.MySQLMigrate,
	}
	o.Poll = a.cfg.MySQLPoll
	return o
}

func (a *app) postgresOptions(n simba.Notices) postgres.Options {
	return postgres.Options{
		Options: a.storeOptions(n), URL: a.cfg.PostgresURL, Reread: a.cfg.reread("postgres-url"),
		ListenURL: a.cfg.PostgresListen, RereadListen: a.cfg.reread("postgres-listen-url"), Migrate: a.cfg.PostgresMigrate,
	}
}

func (a *app) zookeeperOptions(n simba.Notices) zookeeper.Options {
	return zookeeper.Options{
		Options: a.storeOptions(n), Servers: a.cfg.ZooKeeperServers, Auth: a.cfg.ZooKeeperAuth,
		SessionTimeout: a.cfg.ZooKeeperSessionTimeout,
	}
}

func (a *app) openEmbedded(n simba.Notices) error {
	// Garbage collection would free little, and make the start 50 % longer.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	journal, clock, recovery, err := a.openJournal()
	if err != nil {
		return err
	}
	if recovery.Delay > 0 {
		a.log.Warn("recovering: new grants delayed until possibly lost leases expire", "wait", recovery.Delay)
	}
	e, err := engine.New(a.engineConfig(clock, n), journal, recovery)
	if err != nil {
		return err
	}
	// The engine's timers write to the store until Stop returns.
	a.engine = e
	a.undo = append(a.undo, func(context.Context) error { e.Stop(); return nil })
	return nil
}

func (a *app) engineConfig(clock engine.Clock, n simba.Notices) engine.Config {
	return engine.Config{
		Clock:         clock,
		HandoffWindow: a.cfg.HandoffWindow,
		QueueGrace:    a.cfg.QueueGrace,
		HistoryLen:    a.cfg.History,
		Notices:       n,
		PlainChannels: a.cfg.LegacySimbaChannels,
	}
}

// openJournal opens the journal, and the clock that measures its leases.
func (a *app) openJournal() (engine.Journal, engine.Clock, engine.Recovery, error) {
	if a.cfg.Durability == durabilityMemory {
		a.log.Warn("durability memory: leases, queues and history are lost when this process ends; " +
			"a mutex may then be granted while its last owner still relies on its lease")
		floor, err := persist.Floor(time.Now())
		rec := engine.Recovery{Token: floor, Seq: simba.Seq(floor), Delay: a.cfg.RecoveryDelay}
		return engine.Memory(), engine.NewClock(0), rec, err
	}
	boot := persist.MachineBoot()
	clock := engine.ClockOf(boot.Now)
	mode := persist.Always
	if a.cfg.Durability == durabilityAsync {
		mode = persist.Async
	}
	store, recovered, err := persist.Open(persist.Options{
		Dir: a.cfg.DataDir, Mode: mode, Boot: boot, Now: clock.Now, Logger: a.log.Logger, Fatal: a.storeFailed,
		HistoryLen: a.cfg.History, RecoveryDelay: a.cfg.RecoveryDelay,
	})
	if err != nil {
		return nil, engine.Clock{}, engine.Recovery{}, err
	}
	a.store = store
	a.undo = append(a.undo, func(context.Context) error { return store.Close() })
	if store.Created() { // perhaps the disk is not mounted
		a.log.Warn("new data directory: it has no leases", "dir", a.cfg.DataDir)
	}
	return store, clock, engine.Recovery(*recovered), nil
}

// hasDisk reports whether the server keeps leases on a disk of its own.
func (a *app) hasDisk() bool { return a.store != nil || a.member != nil }

// storeStats returns the figures of the present store, zero if there is none.
func (a *app) storeStats() persist.Stats {
	if s := a.presentStore(); s != nil {
		return s.Stats()
	}
	return persist.Stats{}
}

// presentStore returns the store, nil while a member of a cluster does not lead.
func (a *app) presentStore() *persist.Store {
	if a.member != nil {
		return a.member.store.Load()
	}
	return a.store
}

// backup returns the function that begins a backup of the store, nil without a store.
func (a *app) backup() func() (commands.Backup, error) {
	if !a.hasDisk() {
		return nil
	}
	return func() (commands.Backup, error) {
		s := a.presentStore()
		if s == nil {
			return nil, cluster.ErrNotLeader
		}
		b, err := s.Backup()
		if err != nil {
			return nil, err
		}
		return b, nil
	}
}

func (a *app) storeFailed(err error) { a.exit("the data directory failed, exiting", err) }

// exit ends the process.
func (a *app) exit(why string, err error) {
	a.log.Error(why, "dir", a.cfg.DataDir, "err", err)
	a.log.out.flush(logFlushTimeout)
	os.Exit(persist.ExitCode)
}
