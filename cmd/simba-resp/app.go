package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/persist"
	"github.com/simba-resp/simba-resp/resp"
)

// app is the server put together; nowhere else do its parts meet.
//
//	store ─ engine ─ listener ─ commands ─ server
//
// They come up in that order, each on what stands already, and go down in the
// opposite one.
type app struct {
	cfg    *config
	log    *slog.Logger
	level  *slog.LevelVar
	undo   []func(context.Context) error // how to take down what is up, in the order that it came up
	store  *persist.Store                // nil without a disk
	engine *engine.Engine
	server *resp.Server
	ln     net.Listener
}

// newApp brings everything up but serves nobody yet. SHUTDOWN calls shutdown.
func newApp(cfg *config, log *slog.Logger, level *slog.LevelVar, shutdown func()) (_ *app, err error) {
	own := *cfg
	cfg = &own
	if most := clientLimit(); cfg.MaxClients > most {
		log.Warn("maxclients is lowered to what the limit of open files allows", "maxclients", most, "asked", cfg.MaxClients)
		cfg.MaxClients = most
	}
	a := &app{cfg: cfg, log: log, level: level}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.stop(context.Background()))
		}
	}()

	journal, clock, recovery, err := a.openJournal()
	if err != nil {
		return nil, err
	}
	broker := resp.NewBroker() // outside the server: what ended while the process was down is announced at once
	a.engine, err = engine.New(engine.Config{
		Clock:         clock,
		HandoffWindow: cfg.HandoffWindow,
		QueueGrace:    cfg.QueueGrace,
		Notices:       commands.Notices(broker),
	}, journal, recovery)
	if err != nil {
		return nil, err
	}
	// The engine's timers write to the store until it has stopped.
	a.undo = append(a.undo, func(context.Context) error { a.engine.Stop(); return nil })

	// Only now is the address taken: who can connect finds all leases in place.
	if a.ln, err = listen(cfg.Addr); err != nil {
		return nil, err
	}
	// Shutdown closes the listener, but not if the server never served.
	a.undo = append(a.undo, func(context.Context) error { a.ln.Close(); return nil })

	handler := commands.New(commands.Config{
		Backend:     a.engine,
		Settings:    append(newSettings(a).list(), aliases(a)...),
		Password:    func() string { return cfg.RequirePass },
		Info:        a.info(),
		Persistence: a.persistence(),
		Shutdown:    shutdown,
		Logger:      log,
	})
	a.server = resp.NewServer(resp.Config{
		MaxClients:  cfg.MaxClients,
		IdleTimeout: cfg.Timeout,
		Logger:      log,
		Broker:      broker,
		RequireAuth: func() bool { return cfg.RequirePass != "" },
	}, handler)
	handler.Attach(a.server)
	return a, nil
}

// listen takes an address. A peer whose machine or network is gone sends no FIN,
// and nobody writes to one that waits: only probes tell that it is dead. Until they
// do, its SESSION leases stay and a mutex may be handed to its blocked ACQUIRE.
// They take 11 s, below the leases that are usual, where Go's default takes minutes.
func listen(addr string) (net.Listener, error) {
	probed := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3,
	}}
	return probed.Listen(context.Background(), "tcp", addr)
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
	boot, err := persist.MachineBoot()
	if err != nil {
		return nil, engine.Clock{}, engine.Recovery{}, err
	}
	clock := engine.NewClock(boot.Now())
	mode := persist.Always
	if a.cfg.Durability == durabilityAsync {
		mode = persist.Async
	}
	store, recovered, err := persist.Open(persist.Options{Dir: a.cfg.DataDir, Mode: mode, Boot: boot, Now: clock.Now, Logger: a.log})
	if err != nil {
		return nil, engine.Clock{}, engine.Recovery{}, err
	}
	a.store = store
	a.undo = append(a.undo, func(context.Context) error { return store.Close() })
	if recovered.Quiet > 0 {
		a.log.Warn("durability async and no orderly stop: nobody new is granted anything until every lease that may have been lost has ended",
			"wait", recovered.Quiet)
	}
	return store, clock, engine.Recovery(*recovered), nil
}

// start begins to serve. The channel gets the error if serving ends without stop.
func (a *app) start() <-chan error {
	failed := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.server.Serve(a.ln); err != nil {
			failed <- fmt.Errorf("serve %s: %w", a.ln.Addr(), err)
		}
	}()
	// Clients go first: the blocked ones are told, replies are settled and sent, and
	// for that engine and store must still be there.
	a.undo = append(a.undo, func(ctx context.Context) error {
		err := a.server.Shutdown(ctx)
		<-done
		if errors.Is(err, context.DeadlineExceeded) {
			a.log.Warn("clients that did not take their replies in time were cut", "shutdown-timeout", a.cfg.ShutdownTimeout)
			return nil
		}
		return err
	})
	a.log.Info("ready", "addr", a.ln.Addr().String(), "engine", a.cfg.Engine, "durability", a.cfg.Durability,
		"mutexes", a.engine.Stats().Mutexes, "version", version)
	return failed
}

// stop takes down what is up, last in first out. Calling it again does nothing.
// When ctx ends, clients that still do not take their replies are cut.
func (a *app) stop(ctx context.Context) error {
	var errs []error
	for _, undo := range slices.Backward(a.undo) {
		errs = append(errs, undo(ctx))
	}
	a.undo = nil
	return errors.Join(errs...)
}

// info are the facts that INFO shows.
func (a *app) info() commands.Info {
	info := commands.Info{Version: version, Engine: a.cfg.Engine, Durability: a.cfg.Durability, ConfigFile: a.cfg.File}
	if tcp, ok := a.ln.Addr().(*net.TCPAddr); ok {
		info.TCPPort = tcp.Port
	}
	if path, err := os.Executable(); err == nil { // for people to read: "" will do
		info.Executable = path
	}
	return info
}

// persistence returns the store's lines of INFO, nil if there is no store.
func (a *app) persistence() func() []commands.Field {
	if a.store == nil {
		return nil
	}
	return func() []commands.Field {
		s := a.store.Stats()
		line := func(name string, value int64) commands.Field {
			return commands.Field{Name: name, Value: strconv.FormatInt(value, 10)}
		}
		return []commands.Field{
			line("store_commits", s.Commits),
			line("store_changes", s.Changes),
			line("store_bytes", s.Bytes),
			line("store_largest_commit", s.LargestCommit),
			line("store_last_commit_usec", s.LastCommit.Microseconds()),
			line("store_longest_commit_usec", s.LongestCommit.Microseconds()),
		}
	}
}
