// Package simbatest runs a simba-resp server in the process of a test, so that lock code can be
// tested in the fake time of testing/synctest. There a lease of an hour expires at once.
//
//	func TestReport(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			rdb := simbatest.Start(t)
//			c, err := client.New(rdb, client.Options{})
//			…
//			t.Cleanup(func() { c.Close() })
//
// The server is the real one, with the embedded engine and durability memory. Connections in memory
// replace the network. You can also test a program that uses another lock library for go-redis.
//
// # Simulate failures
//
// To simulate a process that has died, send a SIMBA.ACQUIRE and never renew:
//
//	rdb.Do(ctx, "SIMBA.ACQUIRE", "report", "dead", 10_000)
//
// To take a mutex from its owner, send SIMBA.BREAK. To simulate a server that cannot be reached,
// add a hook of go-redis ([redis.Client.AddHook]) that returns an error for each command.
package simbatest

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/resp"
)

// The defaults of the server's settings, see docs/reference/configuration.md.
const (
	handoffWindow = time.Second
	queueGrace    = 5 * time.Second
)

// stopTimeout bounds the wait until all connections of the server are closed.
const stopTimeout = time.Minute

// Start starts a server without leases, and returns a client of it. It stops both when the test
// ends. The first tenure has the fencing token 1. Each later tenure, of any mutex, has a larger
// token.
//
// Call Start inside the bubble of [testing/synctest.Test], with the T of the bubble. Outside a
// bubble the server runs in real time. A bubble does not end while a contender runs in it. So close
// everything that uses the client, by defer or by a Cleanup that is registered after Start.
//
// To test two processes, create another client of the same server, and close it in the test:
//
//	other := redis.NewClient(rdb.Options())
//
// Calls of Start in one bubble start independent servers.
func Start(t testing.TB) *redis.Client {
	t.Helper()
	limitProcessors(t)
	s := newServer(t)
	rdb := redis.NewClient(&redis.Options{
		Addr: "simbatest", Dialer: s.dial, ContextTimeoutEnabled: true, DisableIdentity: true,
		// A request that waits for a connection takes a timer from a pool that all clients of
		// go-redis share. A timer must not leave its bubble. With so many connections no request
		// waits for a connection.
		PoolSize:                 10_000,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() {
		if err := rdb.Close(); err != nil {
			t.Errorf("close the go-redis client: %v", err)
		}
		s.stop(t)
	})
	return rdb
}

// server is a whole server with connections in memory.
type server struct {
	engine   *engine.Engine
	commands *commands.Commands
	resp     *resp.Server
	conns    sync.WaitGroup // goroutines of connections

	mu      sync.Mutex // guards stopped
	stopped bool
}

func newServer(t testing.TB) *server {
	t.Helper()
	broker := resp.NewBroker()
	e, err := engine.New(engine.Config{
		Clock: engine.NewClock(0), HandoffWindow: handoffWindow, QueueGrace: queueGrace, Notices: commands.Notices(broker),
	}, engine.Memory(), engine.Recovery{})
	if err != nil {
		t.Fatalf("start the engine: %v", err)
	}
	quiet := slog.New(slog.DiscardHandler)
	s := &server{engine: e}
	s.commands = commands.New(commands.Config{
		Backend: e, Logger: quiet, Info: commands.Info{Version: "simbatest", Engine: "embedded", Durability: "memory"},
	})
	s.resp = resp.NewServer(resp.Config{
		Limits: resp.Limits{MayBeLong: s.commands.LongArguments}, Committer: e,
		InUse: s.commands.InUse, RequireAuth: s.commands.RequireAuth, Broker: broker, Logger: quiet,
	}, s.commands)
	s.commands.Attach(s.resp)
	return s
}

// dial is a Dialer of go-redis.
func (s *server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped { // go-redis may still dial for a canceled request
		return nil, syscall.ECONNREFUSED
	}
	near, far := net.Pipe()
	served := newConn(far)
	s.conns.Go(func() { s.resp.ServeConn(served) })
	s.conns.Go(served.send)
	return near, nil
}

// stop stops the server and waits for all its goroutines, because a bubble ends only after them.
func (s *server) stop(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := s.resp.Shutdown(ctx); err != nil {
		t.Errorf("stop the server: %v", err)
	}
	s.commands.Close()
	s.engine.Stop()
	s.conns.Wait()
}
