package clienttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/access"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/resp"
	"github.com/simba-resp/simba-resp/tests/tenures"
)

func TestMain(m *testing.M) {
	logging.Disable()                              // go-redis would log each connection that fails
	slog.SetDefault(slog.New(slog.DiscardHandler)) // package contend logs there
	goleak.VerifyTestMain(m)
}

// world is a whole server and its clients in a synctest bubble. In its fake time hours pass at
// once, and durations are exact. Each client has its own connections (wires), which a test can cut,
// silence and slow down.
//
//	inWorld(t, func(t *testing.T, w *world) {
//		a, b := w.client(), w.client()
//		k, err := a.NewContender(…)
//
// Only the test's goroutine may call its methods.
type world struct {
	t        *testing.T
	start    time.Time
	engine   *engine.Engine
	broker   *resp.Broker
	server   *resp.Server       // nil = down
	commands *commands.Commands // the server's commands
	store    *store             // a layer between the server and the engine; nil = none
	longest  atomic.Int64       // the longest lease of the server, a time.Duration; 0 = no limit
	users    *access.Accounts   // nil = only the default user
	guests   []*testClient
}

// inWorld runs a test in a bubble with a new world.
func inWorld(t *testing.T, test func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

// newWorld returns a world with a running server. The end of the test ends the world. The test must
// stop what it has started, in a Cleanup at the latest.
func newWorld(t *testing.T) *world {
	t.Helper()
	if underRace {
		// With several processors, the race detector of Go 1.26 crashes when two goroutines of a
		// bubble receive from due timers at once. On one processor it still finds races.
		before := runtime.GOMAXPROCS(1)
		t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	}
	w := &world{t: t, start: time.Now()}
	w.replace(engine.Recovery{})
	t.Cleanup(func() {
		for _, g := range w.guests {
			g.heal()
			if err := g.Close(); err != nil {
				t.Error(err)
			}
			if err := g.rdb.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
				t.Error(err)
			}
			g.cut()
		}
		w.stop()
		w.engine.Stop()
		for _, g := range w.guests {
			g.all.Wait()
		}
		time.Sleep(time.Minute) // go-redis still dials for canceled requests
	})
	return w
}

// stop stops the server. All connections break, and new ones fail. Leases continue.
func (w *world) stop() {
	w.t.Helper()
	if w.server == nil {
		return
	}
	s := w.server
	w.server = nil
	for _, g := range w.guests {
		g.connect(nil)
		g.cut()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		w.t.Error(err)
	}
}

// begin starts a server with the present engine. It stops the running server, if there is one.
func (w *world) begin() {
	w.stop()
	w.commands, w.server = w.newServer()
	for _, g := range w.guests {
		g.connect(w.server)
	}
}

// newServer returns another server with the present engine.
func (w *world) newServer() (*commands.Commands, *resp.Server) {
	quiet := slog.New(slog.DiscardHandler)
	var backend simba.Backend = w.engine
	if w.store != nil {
		backend = w.store
	}
	cfg := commands.Config{Backend: backend, Logger: quiet, Users: w.users}
	if w.longest.Load() != 0 {
		cfg.LongestLease = func() time.Duration { return time.Duration(w.longest.Load()) }
	}
	c := commands.New(cfg)
	s := resp.NewServer(resp.Config{Committer: backend, Broker: w.broker, Logger: quiet}, c)
	c.Attach(s)
	return c, s
}

func (w *world) restart() { w.begin() }

// behindBalancer returns another server with the same engine, so a client may have connections to
// both. The end of the world stops it.
func (w *world) behindBalancer() *resp.Server {
	w.t.Helper()
	_, s := w.newServer()
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		must(w.t, s.Shutdown(ctx))
	})
	return s
}

// allow restarts the server with users, who have the given rules and the password pw.
func (w *world) allow(rules map[string]string) {
	w.t.Helper()
	file := []byte("user default on nopass ~* &* +@all\n")
	for name, r := range rules {
		file = fmt.Appendf(file, "user %s on >pw %s\n", name, r)
	}
	path := filepath.Join(w.t.TempDir(), "users")
	must(w.t, os.WriteFile(path, file, 0o600))
	var err error
	w.users, err = access.Open(commands.Catalog(), access.Options{Path: path})
	must(w.t, err)
	w.restart()
}

// replace starts a server with a new engine that recovers rec. It stops the running server and the
// engine, if there are any.
func (w *world) replace(rec engine.Recovery) {
	w.t.Helper()
	w.stop()
	if w.engine != nil {
		w.engine.Stop()
	}
	w.broker = resp.NewBroker()
	e, err := engine.New(engine.Config{
		Clock: engine.NewClock(simba.Instant(w.elapsed())), HandoffWindow: time.Second, QueueGrace: 5 * time.Second,
		Notices: commands.Notices(w.broker),
	}, engine.Memory(), rec)
	must(w.t, err)
	w.engine = e
	w.begin()
}

// testClient is a Client with its own go-redis client and wires.
type testClient struct {
	*client.Client
	wires
	rdb *redis.Client
}

// client returns a new Client. The end of the world closes the Client.
func (w *world) client() *testClient { return w.clientWith(client.Options{}) }

func (w *world) clientWith(o client.Options) *testClient {
	w.t.Helper()
	return w.clientOf("", o)
}

// clientOf returns a new Client of a user; "" = the default user.
func (w *world) clientOf(user string, o client.Options, changes ...func(*testClient, *redis.Options)) *testClient {
	w.t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	g, password := new(testClient), ""
	if user != "" {
		password = "pw"
	}
	g.connect(w.server)
	options := &redis.Options{
		Dialer: g.dial, Addr: "127.0.0.1:7379", ContextTimeoutEnabled: true, DisableIdentity: true,
		Username: user, Password: password,
		// A request that waits for a connection takes a timer from a pool that all go-redis clients
		// share. A timer must not leave its bubble. With so many connections no request waits.
		PoolSize:                 10_000,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	for _, change := range changes {
		change(g, options)
	}
	g.rdb = redis.NewClient(options)
	c, err := client.New(g.rdb, o)
	must(w.t, err)
	g.Client = c
	w.guests = append(w.guests, g)
	return g
}

// logged returns a client, and a function that returns its log.
func (w *world) logged() (_ *testClient, read func() string) { return w.loggedOf("") }

func (w *world) loggedOf(user string) (_ *testClient, read func() string) {
	log := new(bytes.Buffer)
	return w.clientOf(user, client.Options{Logger: slog.New(slog.NewTextHandler(log, nil))}), func() string {
		synctest.Wait()
		return log.String()
	}
}

// subscribers returns the number of subscriber's connections.
func (g *testClient) subscribers() int { return g.count() - int(g.rdb.PoolStats().TotalConns) }

// countCommands counts the commands that the Client sends from now on, except those of the
// subscriber's connection.
func (g *testClient) countCommands() *atomic.Int64 {
	n := new(atomic.Int64)
	g.rdb.AddHook(counting{n})
	return n
}

type counting struct{ n *atomic.Int64 }

func (counting) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}
func (counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// acquire sends SIMBA.ACQUIRE with NOQUEUE. release sends SIMBA.RELEASE.
func (g *testClient) acquire(ctx context.Context, mutex, id string, ttl time.Duration) (map[any]any, error) {
	r, err := g.rdb.Do(ctx, "simba.acquire", mutex, id, ttl.Milliseconds(), "noqueue").Result()
	record, _ := r.(map[any]any)
	return record, err
}

func (g *testClient) release(ctx context.Context, mutex, id string) (int, error) {
	return g.rdb.Do(ctx, "simba.release", mutex, id).Int()
}

func (w *world) history(mutex string) []simba.Event {
	w.t.Helper()
	events, _, err := w.engine.History(context.Background(), simba.HistoryRequest{Mutex: mutex, Count: simba.MaxCount})
	must(w.t, err)
	return events
}

// owner returns the owner of the mutex at the server, "" if it is free.
func (w *world) owner(mutex string) string {
	w.t.Helper()
	t, _, err := w.engine.Owner(context.Background(), mutex)
	must(w.t, err)
	return t.Owner
}

// queue returns the ids of the waiters at the server.
func (w *world) queue(mutex string) (ids []string) {
	w.t.Helper()
	entries, _, err := w.engine.Queue(context.Background(), mutex, simba.MaxCount)
	must(w.t, err)
	for _, e := range entries {
		ids = append(ids, e.Contender)
	}
	return ids
}

// subscribed reports whether any client is subscribed to the channel.
func (w *world) subscribed(channel string) bool {
	return w.broker.Subscribers(resp.KindChannel, channel) > 0
}

// breakOff does what SIMBA.BREAK does.
func (w *world) breakOff(mutex string) {
	w.t.Helper()
	ctx := context.Background()
	_, seq, err := w.engine.Break(ctx, mutex, "the test")
	if err == nil {
		err = w.engine.Commit(seq)
	}
	must(w.t, err)
}

// nothingLeft fails the test if the mutex has an owner or a waiter.
func (w *world) nothingLeft(mutex string) {
	w.t.Helper()
	if o, q := w.owner(mutex), w.queue(mutex); o != "" || len(q) != 0 {
		w.t.Errorf("at the server %q owns %s, and the queue is %q; want no owner and no waiter", o, mutex, q)
	}
}

func (w *world) elapsed() time.Duration { return time.Since(w.start) }

// tenures returns the tenures of a mutex at the server, from old to new. Their times count from the
// start of the world. It fails the test if two tenures overlap, or if tokens do not grow.
func (w *world) tenures(mutex string) []tenures.Tenure {
	w.t.Helper()
	var events []tenures.Event
	for _, e := range w.history(mutex) {
		events = append(events, tenures.Event{Kind: e.Kind.String(), Owner: e.Owner, Token: e.Token, At: time.UnixMilli(e.At).Sub(w.start)})
	}
	all, wrong := tenures.InHistory(events, tenures.Complete)
	for _, is := range wrong {
		w.t.Error(mutex, ": ", is)
	}
	return all
}

// Times and limits of package client. Tests rely on them.
const (
	timeout = 3 * time.Second // of a request

	// The client replaces a subscriber's connection that receives nothing between two PINGs.
	pingEvery      = 3 * time.Second
	redialPauseMax = 2 * time.Second  // the longest pause between attempts to connect
	idleAfter      = 30 * time.Second // how long the client keeps a connection without channels
	pollMax        = time.Second      // the longest pause without notices

	watchEvery = 15 * time.Second // how often Watch asks without a notice
)
