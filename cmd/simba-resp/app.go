package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/monitor"
	"github.com/simba-resp/simba-resp/persist"
	"github.com/simba-resp/simba-resp/resp"
)

// app is the assembled server. newApp starts its parts in this order, and stop ends them in
// reverse:
//
//	store ─ engine ─ listener ─ commands ─ server
type app struct {
	cfg     *config
	log     *logs
	undo    []func(context.Context) error // stop calls them from last to first; each stops one part
	store   *persist.Store                // of the embedded engine; nil without a disk, and with a cluster
	member  *member                       // nil = a single server
	engine  liveBackend
	longest func() time.Duration // see commands.Config.LongestLease
	server  *resp.Server
	ln      net.Listener  // of plain RESP, nil = none
	tlsLn   net.Listener  // of TLS, nil = none
	unixLn  net.Listener  // of the unix socket, nil = none
	certs   *certificates // nil without tlsLn

	sentinelLn net.Listener // nil = no Sentinel
	sentinel   *resp.Server // on sentinelLn

	httpLn   net.Listener    // nil = no HTTP
	monitor  *monitor.Server // on httpLn
	backend  simba.Backend   // the field requests, or the field engine if requests is nil
	requests *monitor.Timed  // measures the calls of engine; nil if the engine is embedded
	faults   faults          // of the store's settings; nil if the engine is embedded
	recovery time.Duration   // how long openEngine took

	handler  *commands.Commands
	settings *settings
}

// newApp starts all parts. The server accepts no RESP connections before a call of start. The
// command SHUTDOWN calls shutdown.
//
// The text of the error has one line. newApp fails if ctx ends while it waits for an external
// store.
func newApp(ctx context.Context, cfg *config, log *logs, shutdown func()) (_ *app, err error) {
	own := *cfg
	cfg = &own
	if most := cfg.clientLimit(); cfg.MaxClients > most {
		log.Warn("maxclients lowered to the limit of open files", "maxclients", most, "asked", cfg.MaxClients)
		cfg.MaxClients = most
	}
	a := &app{cfg: cfg, log: log}
	defer func() {
		if err != nil {
			err = joinErrors(err, a.stop(context.Background()))
		}
	}()

	if err := a.openCertificates(); err != nil {
		return nil, err
	}
	if err := a.serveHTTP(); err != nil {
		return nil, err
	}

	// When the engine opens, it publishes which leases expired while the process was down. So the
	// broker must exist first.
	broker := resp.NewBroker()
	began := time.Now()
	if err := a.openEngine(ctx, commands.Notices(broker)); err != nil {
		return nil, err
	}
	a.timeStore(began)

	// The server listens only now, so that the first client finds all leases restored.
	if err := a.listen(); err != nil {
		return nil, err
	}

	a.settings = newSettings(a)
	a.handler = commands.New(commands.Config{
		Backend:      a.backend,
		StoreTimeout: cfg.BackendTimeout,
		Settings:     append(a.settings.list(), aliases(a)...),
		Users:        cfg.users,
		Info:         a.info(cmp.Or(portOf(a.ln), portOf(a.tlsLn))), // as in Redis, the TLS port if the server serves only TLS
		About:        a.about(),
		Persistence:  a.persistence(),
		Cluster:      a.cluster(),
		LongestLease: a.longest,
		MaxMemory:    cfg.MaxMemory,
		Backup:       a.backup(),
		Shutdown:     shutdown,
		Logger:       log.Logger,
		Audit:        log.audit,
	})
	a.undo = append(a.undo, func(context.Context) error { a.handler.Close(); return nil })
	a.server = resp.NewServer(resp.Config{
		Limits:      resp.Limits{MayBeLong: a.handler.LongArguments},
		MaxClients:  cfg.MaxClients,
		IdleTimeout: cfg.Timeout,
		Logger:      log.Logger,
		Broker:      broker,
		Committer:   a.engine,
		InUse:       a.handler.InUse,
		RequireAuth: a.handler.RequireAuth,
	}, a.handler)
	a.handler.Attach(a.server)
	if err := a.openMember(); err != nil {
		return nil, err
	}
	if a.sentinelLn != nil {
		a.openSentinel()
	}
	return a, a.openMonitor()
}

func (a *app) openCertificates() (err error) {
	if a.cfg.TLSAddr == "" {
		return nil
	}
	if a.certs, err = openCertificates(a.cfg, a.log.Logger); err != nil {
		return err
	}
	a.undo = append(a.undo, func(context.Context) error { a.certs.close(); return nil })
	return nil
}

// listen opens the listeners of RESP.
func (a *app) listen() (err error) {
	unix := func(_, path string) (net.Listener, error) { return listenUnix(path, fs.FileMode(a.cfg.UnixSocketPerm)) }
	for _, l := range []struct {
		name, addr string
		open       func(name, addr string) (net.Listener, error)
		ln         *net.Listener
	}{{"addr", a.cfg.Addr, listen, &a.ln}, {"tls-addr", a.cfg.TLSAddr, listen, &a.tlsLn}, {"unixsocket", a.cfg.UnixSocket, unix, &a.unixLn}, {"cluster-sentinel-addr", a.cfg.ClusterSentinelAddr, listen, &a.sentinelLn}} {
		if l.addr == "" {
			continue
		}
		ln, err := l.open(l.name, l.addr)
		if err != nil {
			return err
		}
		*l.ln = ln
		// Server.Shutdown closes the listener too, but only if Serve was called with it.
		a.undo = append(a.undo, func(context.Context) error { ln.Close(); return nil })
	}
	return nil
}

// listen opens a TCP listener whose connections send keep-alive probes. If the machine or the
// network of a client fails, the client sends no FIN. The server writes nothing to a blocked
// waiter, so only the probes detect the failure. Until then the client keeps its SESSION leases,
// and the server may grant it a mutex. The probes take 11 s, less than usual leases. Of a Multipath
// TCP connection, the kernel does not say what its client has acknowledged.
func listen(name, addr string) (net.Listener, error) {
	probed := net.ListenConfig{Control: limitBuffers, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3,
	}}
	probed.SetMultipathTCP(false)
	ln, err := probed.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return ln, nil
}

// start accepts connections. If a listener fails before the server stops, the channel receives the
// error.
func (a *app) start() <-chan error {
	failed := make(chan error, 4)
	var serving sync.WaitGroup
	serve := func(ln net.Listener, serve func(net.Listener) error) {
		if a.member != nil && ln != a.sentinelLn {
			ln = a.member.front(ln)
		}
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
	if a.unixLn != nil {
		serve(a.unixLn, a.server.Serve)
		ready = append(ready, "unixsocket", a.cfg.UnixSocket)
	}
	// Shutdown wakes blocked commands, commits their changes and sends their replies. So stop
	// calls Shutdown before it closes the engine and the store.
	a.undo = append(a.undo, func(ctx context.Context) error {
		err := a.server.Shutdown(ctx)
		serving.Wait()
		if errors.Is(err, context.DeadlineExceeded) {
			a.log.Warn("closed clients that did not read their replies in time", "shutdown-timeout", a.cfg.ShutdownTimeout)
			return nil
		}
		return err
	})
	if a.sentinel != nil {
		serves := a.sentinel.Serve
		if a.cfg.onlyTLS() {
			serves = func(ln net.Listener) error { return a.sentinel.ServeTLS(ln, a.certs.serverConfig()) }
		}
		serve(a.sentinelLn, serves)
		ready = append(ready, "sentinel", a.sentinelLn.Addr().String())
		a.undo = append(a.undo, func(ctx context.Context) error { _ = a.sentinel.Shutdown(ctx); return nil }) // an error says that ctx has ended
	}
	if a.member != nil {
		a.undo = append(a.undo, a.member.handOver)
	}
	if a.httpLn != nil {
		ready = append(ready, "http", a.httpLn.Addr().String())
		a.undo = append(a.undo, func(context.Context) error { a.monitor.Drain(); return nil })
	}
	ready = append(ready, "engine", a.cfg.Engine)
	if a.cfg.Engine == engineEmbedded { // other engines leave these facts to their stores
		ready = append(ready, "durability", a.cfg.Durability)
	}
	switch {
	case a.member != nil: // it counts the mutexes when it leads
		ready = append(ready, "cluster", a.cfg.ClusterName)
	case a.cfg.Engine == engineEmbedded:
		ready = append(ready, "mutexes", a.engine.Stats().Mutexes)
	}
	a.log.Info("ready", append(ready, "version", version)...)
	return failed
}

// reloadTLS reads the TLS files that c names and uses them for new connections. On an error it
// changes nothing.
func (a *app) reloadTLS(c *config) error {
	if a.certs == nil {
		return errors.New("the server does not serve TLS")
	}
	return a.certs.reload(c)
}

// reloadCertificate reads the TLS files again after a SIGHUP. It logs errors.
func (a *app) reloadCertificate() {
	if a.certs == nil {
		a.log.Info("nothing to reload: the server does not serve TLS")
		return
	}
	if err := a.settings.reload(); err != nil {
		a.log.Error("TLS reload failed; keeping the current certificate", "err", err)
	}
}

// drain makes /readyz fail. The app still serves.
func (a *app) drain() {
	if a.monitor != nil {
		a.monitor.Drain()
	}
}

// stop ends the started parts in reverse order. When ctx ends, stop closes the connections of
// clients that do not read their replies. A second call does nothing.
func (a *app) stop(ctx context.Context) error {
	var errs []error
	for _, undo := range slices.Backward(a.undo) {
		errs = append(errs, undo(ctx))
	}
	a.undo = nil
	return joinErrors(errs...)
}

// joinErrors is errors.Join with a text of one line.
func joinErrors(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return persist.OneLine{Err: err}
	}
	return nil
}

func (a *app) info(port int) commands.Info {
	info := commands.Info{TCPPort: port, Version: version, Engine: a.cfg.Engine, ConfigFile: a.cfg.File}
	switch a.cfg.Engine {
	case engineEmbedded:
		info.Durability = a.cfg.Durability
		info.Survives = a.cfg.Durability != durabilityMemory
	case engineZooKeeper: // leases end with this process' session
	default:
		info.Survives = true
	}
	if path, err := os.Executable(); err == nil { // informative only
		info.Executable = path
	}
	return info
}

// portOf returns the port of a TCP listener, 0 if there is none.
func portOf(ln net.Listener) int {
	if ln == nil {
		return 0
	}
	return ln.Addr().(*net.TCPAddr).Port
}

// about returns the fields of INFO's section server for TLS and the unix socket.
func (a *app) about() func() []commands.Field {
	return func() (fields []commands.Field) {
		if a.unixLn != nil {
			fields = append(fields, commands.Field{Name: "unixsocket", Value: a.cfg.UnixSocket})
		}
		if a.certs != nil {
			fields = append(fields,
				commands.Field{Name: "tls_port", Value: strconv.Itoa(portOf(a.tlsLn))},
				commands.Field{Name: "tls_cert_expires_at", Value: strconv.FormatInt(a.certs.current.Load().expires().Unix(), 10)})
		}
		return fields
	}
}

// faults returns the present faults of a store's settings.
type faults func() []proxy.Fault

// persistence returns the store's fields of INFO, nil without a store.
func (a *app) persistence() func() []commands.Field {
	if a.faults != nil {
		return func() []commands.Field {
			return []commands.Field{{Name: "store_faults", Value: strings.Join(proxy.Texts(a.faults()), " | ")}}
		}
	}
	if !a.hasDisk() {
		return nil
	}
	return func() []commands.Field {
		s := a.storeStats()
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
