package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/persist"
	"github.com/simba-resp/simba-resp/resp"
)

// app is the server put together; nowhere but here and in engines.go do its parts
// meet.
//
//	store ─ engine ─ listener ─ commands ─ server
//
// They come up in that order, each on what stands already, and go down in the
// opposite one.
type app struct {
	cfg    *config
	log    *logs
	undo   []func(context.Context) error // how to take down what is up, in the order that it came up
	store  *persist.Store                // of the embedded engine; nil without a disk
	engine keeper
	server *resp.Server
	ln     net.Listener  // of plain RESP, nil = none
	tlsLn  net.Listener  // of TLS, nil = none
	certs  *certificates // nil without tlsLn

	handler  *commands.Commands
	settings *settings
}

// newApp brings everything up but serves nobody yet. SHUTDOWN calls shutdown.
//
// Its error is one line. When ctx ends while it waits for the store of another
// engine, it gives up.
func newApp(ctx context.Context, cfg *config, log *logs, shutdown func()) (_ *app, err error) {
	own := *cfg
	cfg = &own
	if most := clientLimit(); cfg.MaxClients > most {
		log.Warn("maxclients is lowered to what the limit of open files allows", "maxclients", most, "asked", cfg.MaxClients)
		cfg.MaxClients = most
	}
	a := &app{cfg: cfg, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.stop(context.Background()))
		}
	}()

	broker := resp.NewBroker() // outside the server: what ended while the process was down is announced at once
	if err := a.openEngine(ctx, commands.Notices(broker)); err != nil {
		return nil, err
	}

	// Only now are the addresses taken: who can connect finds all leases in place.
	if err := a.listen(); err != nil {
		return nil, err
	}

	a.settings = newSettings(a)
	a.handler = commands.New(commands.Config{
		Backend:      a.engine,
		StoreTimeout: cfg.BackendTimeout,
		Settings:     append(a.settings.list(), aliases(a)...),
		Users:        cfg.users,
		Info:         a.info(),
		About:        a.about(),
		Persistence:  a.persistence(),
		MaxMemory:    cfg.MaxMemory,
		Shutdown:     shutdown,
		Logger:       log.Logger,
		Audit:        log.audit,
	})
	a.undo = append(a.undo, func(context.Context) error { a.handler.Close(); return nil })
	a.server = resp.NewServer(resp.Config{
		Limits:       resp.Limits{Long: a.handler.LongArguments},
		MaxClients:   cfg.MaxClients,
		IdleTimeout:  cfg.Timeout,
		Logger:       log.Logger,
		Broker:       broker,
		Committer:    a.engine,
		CommitWaited: a.handler.Settled,
		InUse:        a.handler.InUse,
		RequireAuth:  a.handler.RequireAuth,
		Poll:         a.cfg.Engine == engineEmbedded, // others wait for their stores, each command on its own
	}, a.handler)
	a.handler.Attach(a.server)
	return a, nil
}

// listen takes the addresses.
func (a *app) listen() (err error) {
	if a.cfg.TLSAddr != "" {
		if a.certs, err = openCertificates(a.cfg, a.log.Logger); err != nil {
			return err
		}
		a.undo = append(a.undo, func(context.Context) error { a.certs.close(); return nil })
	}
	for _, l := range []struct {
		addr string
		ln   *net.Listener
	}{{a.cfg.Addr, &a.ln}, {a.cfg.TLSAddr, &a.tlsLn}} {
		if l.addr == "" {
			continue
		}
		ln, err := listen(l.addr)
		if err != nil {
			return err
		}
		*l.ln = ln
		// Shutdown closes the listener, but not if the server never served.
		a.undo = append(a.undo, func(context.Context) error { ln.Close(); return nil })
	}
	return nil
}

// listen takes an address. A peer whose machine or network is gone sends no FIN,
// and nobody writes to one that waits: only probes tell that it is dead. Until they
// do, its SESSION leases stay and a mutex may be handed to its blocked ACQUIRE.
// They take 11 s, below the leases that are usual, where Go's default takes minutes.
func listen(addr string) (net.Listener, error) {
	probed := net.ListenConfig{Control: boundBuffers, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3,
	}}
	return probed.Listen(context.Background(), "tcp", addr)
}

// start begins to serve. The channel gets the error if serving ends without stop.
func (a *app) start() <-chan error {
	failed := make(chan error, 2)
	var serving sync.WaitGroup
	serve := func(ln net.Listener, serve func(net.Listener) error) {
		serving.Go(func() {
			if err := serve(ln); err != nil {
				failed <- fmt.Errorf("serve %s: %w", ln.Addr(), err)
			}
		})
	}
	var ready []any
	if a.ln != nil {
		serve(a.ln, a.server.Serve)
		ready = append(ready, "addr", a.ln.Addr().String())
	}
	if a.tlsLn != nil {
		serve(a.tlsLn, func(ln net.Listener) error { return a.server.ServeTLS(ln, a.certs.serverConfig()) })
		ready = append(ready, "tls", a.tlsLn.Addr().String())
	}
	// Clients go first: the blocked ones are told, replies are settled and sent, and
	// for that engine and store must still be there.
	a.undo = append(a.undo, func(ctx context.Context) error {
		err := a.server.Shutdown(ctx)
		serving.Wait()
		if errors.Is(err, context.DeadlineExceeded) {
			a.log.Warn("clients that did not take their replies in time were cut", "shutdown-timeout", a.cfg.ShutdownTimeout)
			return nil
		}
		return err
	})
	ready = append(ready, "engine", a.cfg.Engine)
	if a.cfg.Engine == engineEmbedded { // what the others keep is their stores' affair
		ready = append(ready, "durability", a.cfg.Durability, "mutexes", a.engine.Stats().Mutexes)
	}
	a.log.Info("ready", append(ready, "version", version)...)
	return failed
}

// reloadTLS reads the files of TLS that c names; new connections get what is in them. On
// an error nothing has changed.
func (a *app) reloadTLS(c *config) error {
	if a.certs == nil {
		return errors.New("TLS is not served")
	}
	return a.certs.reload(c)
}

// hangup is told of a SIGHUP.
func (a *app) hangup() {
	if err := a.settings.reload(); err != nil {
		a.log.Error("the TLS certificate stays what it was", "err", err)
	}
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
	info := commands.Info{Version: version, Engine: a.cfg.Engine, ConfigFile: a.cfg.File}
	switch a.cfg.Engine {
	case engineEmbedded:
		info.Durability = a.cfg.Durability
		info.Survives = a.cfg.Durability != durabilityMemory
	case engineZooKeeper: // its leases are nodes of this process' session
	default:
		info.Survives = true
	}
	// As in Redis: the port of TLS if there is no other.
	info.TCPPort = cmp.Or(portOf(a.ln), portOf(a.tlsLn))
	if path, err := os.Executable(); err == nil { // for people to read: "" will do
		info.Executable = path
	}
	return info
}

// portOf is the port of a listener, 0 if there is none.
func portOf(ln net.Listener) int {
	if ln == nil {
		return 0
	}
	tcp, ok := ln.Addr().(*net.TCPAddr)
	if !ok {
		return 0
	}
	return tcp.Port
}

// about returns the lines of INFO's section server that are about TLS, nil without it.
func (a *app) about() func() []commands.Field {
	if a.certs == nil {
		return nil
	}
	return func() []commands.Field {
		return []commands.Field{
			{Name: "tls_port", Value: strconv.Itoa(portOf(a.tlsLn))},
			{Name: "tls_cert_expires_at", Value: strconv.FormatInt(a.certs.expires().Unix(), 10)},
		}
	}
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
