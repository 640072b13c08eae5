package monitor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp/commands"
)

const (
	// maxHeader is the maximum size of a request's header in bytes.
	maxHeader = 16 << 10
	// requestTimeout bounds how long a client may take to send a request.
	requestTimeout = 5 * time.Second
	// replyTimeout bounds how long a reply may take, including that of a profile.
	replyTimeout = 2 * time.Minute
	// idleTimeout is how long a connection may wait for its next request. Scrapes are more
	// frequent.
	idleTimeout = 2 * time.Minute
)

// To get one of these pages, a user must have the right to run the page's command.
const (
	metricsCommand = "info"       // for /metrics, and for the field error of /readyz
	pprofCommand   = "config|get" // for /debug/pprof
)

// Config configures New.
type Config struct {
	TLS    *tls.Config  // nil = plain HTTP
	Pprof  bool         // serve /debug/pprof
	Logger *slog.Logger // required; errors of connections have level debug
}

// Server serves metrics and health over HTTP. /livez succeeds at once. /readyz succeeds only
// between Open and Drain, while the store answers. /leader is the same on the leader of a cluster, and
// fails on the other members. All methods are safe for concurrent use.
type Server struct {
	http    *http.Server
	tls     *tls.Config
	log     *slog.Logger
	serving sync.WaitGroup
	stop    context.CancelFunc // ends the contexts of all requests
	conns   conns

	opened   atomic.Pointer[opened] // nil before Open
	draining atomic.Bool
}

// opened are the parts that exist after Open.
type opened struct {
	*Sources
	prober  *prober
	metrics http.Handler
}

// New returns a Server that does not listen yet.
func New(cfg Config) *Server {
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{tls: cfg.TLS, log: cfg.Logger, stop: stop}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.live)
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("GET /leader", s.leader)
	mux.HandleFunc("GET /metrics", s.authorized(metricsCommand, func(w http.ResponseWriter, r *http.Request) {
		s.opened.Load().metrics.ServeHTTP(w, r)
	}))
	if cfg.Pprof {
		for path, serve := range map[string]http.HandlerFunc{
			"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
		} {
			mux.HandleFunc("GET /debug/pprof/"+path, s.authorized(pprofCommand, serve))
		}
	}
	s.http = &http.Server{
		Handler:           withHeaders(mux),
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      replyTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withConn,
		ConnState:         s.conns.changed,
	}
	return s
}

// withHeaders adds the headers of every reply.
func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// Serve accepts connections until Close.
func (s *Server) Serve(ln net.Listener) {
	if s.tls != nil {
		ln = tls.NewListener(ln, s.tls) // HTTP/1.1 only, so that maxConns bounds the requests
	}
	s.serving.Go(func() {
		if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("HTTP server failed; metrics and health are not served any more", "err", err)
		}
	})
}

// Open makes the server ready. src must be usable until Close.
func (s *Server) Open(src Sources) error {
	p := newProber(&src)
	metrics, err := handler(&src, p, s.log)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	s.opened.Store(&opened{Sources: &src, prober: p, metrics: metrics})
	return nil
}

// Drain makes /readyz fail, because the process begins to stop.
func (s *Server) Drain() { s.draining.Store(true) }

// Close stops the server. It waits for requests until ctx ends, then cuts their connections.
func (s *Server) Close(ctx context.Context) error {
	s.stop() // ends profiles, waits for probes, and the delays of failed logins
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	s.serving.Wait()
	if o := s.opened.Load(); o != nil {
		o.prober.close()
	}
	return err
}

// authorized serves a request only if its sender has the right to run the command.
func (s *Server) authorized(command string, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o := s.opened.Load()
		if o == nil {
			http.Error(w, "the server is starting", http.StatusServiceUnavailable)
			return
		}
		switch err := o.Commands.Authorize(r.Context(), credentials(r), command); {
		case errors.Is(err, commands.ErrNotAuthenticated):
			w.Header().Set("WWW-Authenticate", `Basic realm="simba-resp", charset="UTF-8"`)
			http.Error(w, err.Error(), http.StatusUnauthorized)
		case err != nil:
			http.Error(w, fmt.Sprintf("%v to run '%s'", err, command), http.StatusForbidden)
		default:
			s.conns.authorize(r)
			serve(w, r)
		}
	}
}

// credentials returns the name, the password and the certificate of a request.
func credentials(r *http.Request) commands.Credentials {
	c := commands.Credentials{RemoteAddr: r.RemoteAddr}
	c.Name, c.Password, c.Given = r.BasicAuth()
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		c.Certificate = r.TLS.VerifiedChains[0][0].Subject.CommonName
	}
	return c
}
