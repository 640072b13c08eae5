package main

import (
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/monitor"
)

func (c *config) checkHTTP(refuse func(name, format string, args ...any)) {
	for _, name := range c.metricsMutexes() {
		// On the embedded engine the keys of Redis commands are mutexes too, of any name.
		if err := simba.CheckMutex(name); err != nil && c.Engine != engineEmbedded && !monitor.IsGlob(name) {
			refuse("metrics-mutexes", "%q: %w", name, err)
		}
	}
}

// metricsMutexes returns the globs of MetricsMutexes, each once.
func (c *config) metricsMutexes() (globs []string) {
	for glob := range strings.SplitSeq(c.MetricsMutexes, ",") {
		if glob = strings.TrimSpace(glob); glob != "" && !slices.Contains(globs, glob) {
			globs = append(globs, glob)
		}
	}
	return globs
}

// serveHTTP begins to serve HTTP before the server is ready. Recovery, or the wait for a store, may
// take long.
func (a *app) serveHTTP() error {
	if a.cfg.HTTPAddr == "" {
		return nil
	}
	ln, err := listen("http-addr", a.cfg.HTTPAddr)
	if err != nil {
		return err
	}
	cfg := monitor.Config{Pprof: a.cfg.HTTPPprof, Logger: a.log.Logger}
	if a.certs != nil {
		cfg.TLS = a.certs.serverConfig()
	}
	a.httpLn, a.monitor = ln, monitor.New(cfg)
	a.undo = append(a.undo, a.monitor.Close)
	a.monitor.Serve(ln)
	return nil
}

// openMonitor makes the HTTP server ready.
func (a *app) openMonitor() error {
	if a.monitor == nil {
		return nil
	}
	src := monitor.Sources{
		Build:    monitor.Build{Version: version, GoVersion: runtime.Version(), Engine: a.cfg.Engine},
		Backend:  a.engine,
		Server:   a.server,
		Commands: a.handler,
		DroppedLines: func() (server, audit uint64) {
			return a.log.out.droppedLines(plainLine), a.log.out.droppedLines(auditLine)
		},
		CertificatesExpire: a.certificatesExpire,

		Recovery: a.recovery,
		Mutexes:  a.cfg.metricsMutexes(),
		Faults:   a.faults,
	}
	if a.cfg.Engine == engineEmbedded {
		src.Build.Durability = a.cfg.Durability
	}
	if a.hasDisk() {
		src.Journal = a.storeStats
	}
	if a.member != nil {
		src.Cluster = a.member.monitored
	}
	if a.requests != nil {
		src.Backend, src.Requests = a.requests.Probes(), a.requests.RequestStats
	}
	return a.monitor.Open(src)
}

// certificatesExpire returns when the certificates of the server, and of its connections to the
// store, expire, by setting.
func (a *app) certificatesExpire() map[string]time.Time {
	all := make(map[string]time.Time)
	if a.certs != nil {
		maps.Copy(all, a.certs.current.Load().expire)
	}
	if a.member != nil && a.member.tls.Last() != nil {
		maps.Copy(all, a.member.tls.Get().expire)
	}
	if b, ok := a.engine.(interface{ CertificatesExpire() map[string]time.Time }); ok {
		maps.Copy(all, b.CertificatesExpire())
	}
	return all
}

// timeStore makes the server measure the requests to a store, and log its outages. On the embedded
// engine the journal has its own figures.
func (a *app) timeStore(began time.Time) {
	a.backend, a.recovery = a.engine, time.Since(began)
	if a.cfg.Engine != engineEmbedded {
		a.requests = monitor.NewTimed(a.engine, a.log.Logger)
		a.backend = a.requests
	}
}
