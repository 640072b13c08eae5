package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/resp"
)

// connect starts a server that keeps everything in memory, for an example, and returns a client
// of it. A real program makes one like this:
//
//	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7379", ContextTimeoutEnabled: true})
//	c, err := client.New(rdb, client.Options{})
func connect() (c *client.Client, done func()) {
	quiet := slog.New(slog.DiscardHandler)
	broker := resp.NewBroker()
	e, err := engine.New(engine.Config{
		Clock: engine.NewClock(0), HandoffWindow: time.Second, QueueGrace: 5 * time.Second, Notices: commands.Notices(broker),
	}, engine.Memory(), engine.Recovery{})
	if err != nil {
		panic(err)
	}
	x := commands.New(commands.Config{Backend: e, Logger: quiet})
	server := resp.NewServer(resp.Config{Committer: e, Broker: broker, Logger: quiet}, x)
	x.Attach(server)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(ln)
	}()
	rdb := redis.NewClient(&redis.Options{Addr: ln.Addr().String(), ContextTimeoutEnabled: true, DisableIdentity: true})
	c, err = client.New(rdb, client.Options{})
	if err != nil {
		panic(err)
	}
	return c, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := errors.Join(c.Close(), rdb.Close(), server.Shutdown(ctx))
		<-served
		e.Stop()
		if err != nil {
			panic(err)
		}
	}
}

// check ends an example that fails.
func check(err error) {
	if err != nil {
		panic(err)
	}
}
