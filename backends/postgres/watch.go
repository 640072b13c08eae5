package postgres

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/credentials"
)

// watch tells other servers which mutexes have changed, and learns it from them. A step does not
// NOTIFY in its transaction, since PostgreSQL then serializes the commits of all databases. After the
// commit, one goroutine notifies of all mutexes that have changed meanwhile, in a transaction that
// does not wait for the disk.
//
// Another goroutine listens. Every few seconds each server also notifies itself, so that it finds
// out when it hears nothing. Until it hears itself again, all its mutexes are read every second.
type watch struct {
	source *credentials.Source[target]
	log    *slog.Logger
	id     string      // of this server, in its notices
	hears  atomic.Bool // the server hears itself

	stop    context.CancelFunc
	running sync.WaitGroup
	wake    chan struct{} // capacity 1

	mu      sync.Mutex // guards the fields below
	changed map[string]struct{}
	watched map[string]struct{}
}

const (
	// channel is the channel of all notices. The payload is the server's id, a space and the mutex;
	// "" = the server notifies itself.
	channel = "simba_mutex"
	// notifyRetry is the pause after notices could not be sent.
	notifyRetry = 100 * time.Millisecond
	// unheard is how often all mutexes are read while the server hears nothing.
	unheard = time.Second
	// deafRetry is how long a server that hears nothing waits until it listens again. If the
	// connection is lost, it waits for unheard.
	deafRetry = 30 * time.Second
	// keepFree is how long the row of a free mutex is kept at least.
	keepFree = time.Hour
	// sweepEvery is about how often old rows are deleted, sweepBatch of them in a transaction.
	sweepEvery = time.Minute
	sweepBatch = 1000
)

// heartbeat is how often a server notifies itself. Tests shorten it.
var heartbeat = 3 * time.Second

func newWatch(source *credentials.Source[target], log *slog.Logger) watch {
	return watch{
		source: source, log: log, id: strconv.FormatUint(rand.Uint64(), 36),
		wake: make(chan struct{}, 1), changed: make(map[string]struct{}), watched: make(map[string]struct{}),
	}
}

func (w *watch) start(s *store) {
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	w.running.Go(func() { s.notify(ctx) })
	w.running.Go(func() { s.listen(ctx) })
	w.running.Go(func() { s.sweep(ctx) })
}

func (w *watch) close() {
	if w.stop != nil {
		w.stop()
	}
	w.running.Wait()
}

// Watch implements proxy.Store.
func (s *store) Watch(mutex string) {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	s.watch.watched[mutex] = struct{}{}
}

// Unwatch implements proxy.Store.
func (s *store) Unwatch(mutex string) {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	delete(s.watch.watched, mutex)
}

// announce notifies other servers soon that a mutex has changed. The mutex "" is the heartbeat.
func (s *store) announce(mutex string) {
	w := &s.watch
	w.mu.Lock()
	w.changed[mutex] = struct{}{}
	w.mu.Unlock()
	proxy.Wake(w.wake)
}

// notify sends what announce has collected, until ctx ends. It repeats what it could not send.
func (s *store) notify(ctx context.Context) {
	w := &s.watch
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
		w.mu.Lock()
		changed := w.changed
		w.changed = make(map[string]struct{})
		w.mu.Unlock()
		var notices []string
		for mutex := range changed {
			notices = append(notices, quote(w.id+" "+mutex))
		}
		short, cancel := context.WithTimeout(ctx, s.timeout)
		_, err := s.exec(short, "SET LOCAL synchronous_commit = off; "+
			"SELECT pg_notify('"+channel+"', x) FROM unnest(ARRAY["+strings.Join(notices, ",")+"]) x")
		cancel()
		if err != nil && ctx.Err() == nil {
			w.log.Debug("cannot notify other servers", "mutexes", len(changed), "err", err)
			w.mu.Lock()
			maps.Copy(w.changed, changed)
			w.mu.Unlock()
			time.AfterFunc(notifyRetry, func() { s.announce("") })
		}
	}
}

var (
	// errDeaf is returned when a connection listens, but never hears its own server.
	errDeaf = errors.New("no notice arrives")
	// errLost is returned when a connection no longer hears its own server.
	errLost = errors.New("no notice arrives any more")
	// errPooler is returned when a pooler answers in place of the database. LISTEN would stay in a
	// session that the pooler gives to others, and PgBouncer 1.18 ends when a notice then arrives.
	errPooler = errors.New("the connection leads to a pooler such as PgBouncer, which loses notices")
)

// listen calls Hooks.Changed for notices of other servers, until ctx ends. It logs when it begins to
// hear nothing, and when it hears again.
func (s *store) listen(ctx context.Context) {
	hooks, warned := s.hooks, false
	for failed := 1; ctx.Err() == nil; failed++ {
		err := s.hear(ctx, func() {
			if warned {
				s.watch.log.Info("notices of other servers arrive again")
			}
			warned, failed = false, 0
			s.watch.hears.Store(true)
			hooks.Changed("") // what has changed while the server heard nothing
		})
		s.watch.hears.Store(false)
		wait := unheard
		deaf := errors.Is(err, errDeaf) || errors.Is(err, errPooler)
		if deaf {
			wait = deafRetry
		}
		if !warned && (deaf || failed > 1) && ctx.Err() == nil {
			warned = true
			s.watch.log.Warn("no notices of other servers arrive: releases by other servers are noticed up to a second late; "+
				"postgres-listen-url must lead to the database itself", "err", err)
		}
		for ; wait > 0 && ctx.Err() == nil; wait -= unheard {
			hooks.Changed("")
			select {
			case <-time.After(unheard):
			case <-ctx.Done():
			}
		}
	}
}

// hear listens on a new connection, and calls heard when it hears its own server for the first time.
// It returns when ctx ends, or when it hears nothing any more.
func (s *store) hear(ctx context.Context, heard func()) error {
	w := &s.watch
	first := true
	var at time.Time // of the last notice of its own
	cfg := w.source.Get().ConnConfig.Config.Copy()
	cfg.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
		id, mutex, _ := strings.Cut(n.Payload, " ")
		w.mu.Lock()
		_, watched := w.watched[mutex]
		w.mu.Unlock()
		switch {
		case id != w.id && watched:
			s.hooks.Changed(mutex)
		case id == w.id && mutex == "":
			at = time.Now()
		}
	}
	short, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	conn, err := pgconn.ConnectConfig(short, cfg)
	if err != nil {
		return err
	}
	defer func() {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(short)
	}()
	rows, err := run(short, conn, "SELECT pg_backend_pid()")
	if err == nil && uint32(number(rows[0][0])) != conn.PID() {
		err = errPooler
	}
	if err == nil {
		_, err = run(short, conn, "LISTEN "+channel)
	}
	if err != nil {
		return err
	}
	began := time.Now()
	patience := 2*heartbeat + s.timeout
	for sent := (time.Time{}); ; {
		if time.Since(sent) >= heartbeat {
			sent = time.Now()
			s.announce("")
		}
		wait, cancel := context.WithDeadline(ctx, sent.Add(heartbeat))
		err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && conn.IsClosed():
			return err
		case first && !at.IsZero():
			first = false
			heard()
		case first && time.Since(began) > patience:
			return errDeaf
		case !first && time.Since(at) > patience:
			return errLost
		}
	}
}

// sweep deletes the rows of mutexes that have been free for long, until ctx ends. Errors do not
// matter: the next run deletes them.
func (s *store) sweep(ctx context.Context) {
	for {
		select {
		case <-time.After(sweepEvery/2 + rand.N(sweepEvery)):
		case <-ctx.Done():
			return
		}
		for n := sweepBatch; n == sweepBatch && ctx.Err() == nil; {
			n = s.deleteFree(ctx, keepFree)
		}
	}
}

// deleteFree deletes up to sweepBatch rows of mutexes that have been free for the time. It returns
// how many it has deleted. It skips rows that others have locked.
func (s *store) deleteFree(ctx context.Context, free time.Duration) int {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	rows, err := s.exec(ctx, "SET LOCAL synchronous_commit = off; WITH old AS MATERIALIZED (SELECT mutex FROM simba_mutex WHERE transition_at < "+
		dbClock+" - "+strconv.FormatInt(free.Milliseconds(), 10)+" LIMIT "+strconv.Itoa(sweepBatch)+" FOR UPDATE SKIP LOCKED)"+
		" DELETE FROM simba_mutex m USING old WHERE m.mutex = old.mutex RETURNING 1")
	if err != nil && ctx.Err() == nil {
		s.watch.log.Debug("cannot delete the rows of free mutexes", "err", err)
	}
	return len(rows)
}
