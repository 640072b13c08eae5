package main

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/mysql"
	"github.com/simba-resp/simba-resp/backends/redis"
	"github.com/simba-resp/simba-resp/backends/zookeeper"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/persist"
)

// keeper is what the app needs of an engine.
type keeper interface {
	simba.Backend
	SetHandoffWindow(time.Duration)
	SetQueueGrace(time.Duration)
}

// openEngine sets a.engine up as the configuration says.
func (a *app) openEngine(ctx context.Context, n simba.Notices) error {
	switch a.cfg.Engine {
	case engineRedis:
		b, err := redis.Open(ctx, a.redisOptions(n))
		if err != nil {
			return err
		}
		a.adopt(b, b.Close)
	case engineMySQL:
		b, err := mysql.Open(ctx, a.mysqlOptions(n))
		if err != nil {
			return err
		}
		a.adopt(b, b.Close)
	case engineZooKeeper:
		b, err := zookeeper.Open(ctx, a.zookeeperOptions(n))
		if err != nil {
			return err
		}
		a.adopt(b, b.Close)
	default:
		return a.openEmbedded(n)
	}
	return nil
}

func (a *app) adopt(k keeper, closeIt func() error) {
	a.engine = k
	a.undo = append(a.undo, func(context.Context) error { return closeIt() })
}

func (a *app) redisOptions(n simba.Notices) redis.Options {
	return redis.Options{
		URL: a.cfg.RedisURL, Timeout: a.cfg.BackendTimeout, Notices: n, Logger: a.log.Logger,
		HandoffWindow: a.cfg.HandoffWindow, QueueGrace: a.cfg.QueueGrace,
	}
}

func (a *app) mysqlOptions(n simba.Notices) mysql.Options {
	return mysql.Options{
		DSN: a.cfg.MySQLDSN, Migrate: a.cfg.MySQLMigrate, Poll: a.cfg.MySQLPoll, Timeout: a.cfg.BackendTimeout, Notices: n, Logger: a.log.Logger,
		HandoffWindow: a.cfg.HandoffWindow, QueueGrace: a.cfg.QueueGrace,
	}
}

func (a *app) zookeeperOptions(n simba.Notices) zookeeper.Options {
	return zookeeper.Options{
		Servers: a.cfg.ZooKeeperServers, Auth: a.cfg.ZooKeeperAuth, SessionTimeout: a.cfg.ZooKeeperSessionTimeout,
		Timeout: a.cfg.BackendTimeout, Notices: n, Logger: a.log.Logger,
		HandoffWindow: a.cfg.HandoffWindow, QueueGrace: a.cfg.QueueGrace,
	}
}

// openEmbedded sets the embedded engine up, on its disk.
func (a *app) openEmbedded(n simba.Notices) error {
	// What a start makes of the stored leases stays, and what it leaves behind, the names as
	// they were read, is at most as much again: hardly more than the heap may grow by later
	// anyway. To look for it meanwhile takes half as long as all the rest together.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	journal, clock, recovery, err := a.openJournal()
	if err != nil {
		return err
	}
	e, err := engine.New(engine.Config{
		Clock:         clock,
		HandoffWindow: a.cfg.HandoffWindow,
		QueueGrace:    a.cfg.QueueGrace,
		Notices:       n,
	}, journal, recovery)
	if err != nil {
		return err
	}
	// The engine's timers write to the store until it has stopped.
	a.adopt(e, func() error { e.Stop(); return nil })
	return nil
}

// openJournal opens what makes changes durable, and the clock that its leases are
// measured by.
func (a *app) openJournal() (engine.Journal, engine.Clock, engine.Recovery, error) {
	if a.cfg.Durability == durabilityMemory {
		a.log.Warn("durability memory: leases, queues and history are lost when this process ends, " +
			"and a mutex can then be granted while its last owner still believes in its lease")
		// Tokens and the history's numbers must grow from one run to the next. With
		// nothing stored, that is as true as the wall clock.
		began := time.Now().UnixMicro()
		return engine.Memory(), engine.NewClock(0), engine.Recovery{Token: uint64(began), Seq: simba.Seq(began)}, nil
	}
	boot := persist.MachineBoot()
	clock := engine.ClockOf(boot.Now)
	mode := persist.Always
	if a.cfg.Durability == durabilityAsync {
		mode = persist.Async
	}
	store, recovered, err := persist.Open(persist.Options{
		Dir: a.cfg.DataDir, Mode: mode, Boot: boot, Now: clock.Now, Logger: a.log.Logger, Fatal: a.storeFailed,
	})
	if err != nil {
		return nil, engine.Clock{}, engine.Recovery{}, err
	}
	a.store = store
	a.undo = append(a.undo, func(context.Context) error { return store.Close() })
	if recovered.Delay > 0 {
		a.log.Warn("durability async and no orderly stop: nobody new is granted anything until every lease that may have been lost has ended",
			"wait", recovered.Delay)
	}
	return store, clock, engine.Recovery(*recovered), nil
}

// storeFailed ends the process. The log gets a moment to say why.
func (a *app) storeFailed(err error) {
	a.log.Error("the data directory failed, exiting", "dir", a.cfg.DataDir, "err", err)
	a.log.out.flush(lastWords)
	os.Exit(persist.ExitCode)
}
