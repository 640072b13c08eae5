package clienttest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/resp"
)

// realServer returns the address of a server in this process, and its engine.
func realServer(b testing.TB) (addr string, _ *engine.Engine) {
	b.Helper()
	quiet := slog.New(slog.DiscardHandler)
	broker := resp.NewBroker()
	e, err := engine.New(engine.Config{
		Clock: engine.NewClock(0), HandoffWindow: time.Second, QueueGrace: 5 * time.Second, Notices: commands.Notices(broker),
	}, engine.Memory(), engine.Recovery{})
	must(b, err)
	x := commands.New(commands.Config{Backend: e, Logger: quiet})
	server := resp.NewServer(resp.Config{Committer: e, Broker: broker, Logger: quiet}, x)
	x.Attach(server)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(ln) })
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			b.Error(err)
		}
		served.Wait()
		e.Stop()
	})
	// From the first reply on, the server has all its goroutines. Tests look for those that stay.
	rdb := redis.NewClient(&redis.Options{Addr: ln.Addr().String()})
	defer rdb.Close()
	must(b, rdb.Ping(bg).Err())
	return ln.Addr().String(), e
}

// realClient returns a Client and its go-redis client, connected over TCP to a server in this
// process.
func realClient(b *testing.B) (*client.Client, *redis.Client) {
	b.Helper()
	addr, _ := realServer(b)
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true})
	c, err := client.New(rdb, client.Options{})
	must(b, err)
	b.Cleanup(func() {
		c.Close()
		rdb.Close()
	})
	return c, rdb
}

// BenchmarkThousandLocks locks and unlocks 1,000 mutexes concurrently with one go-redis client.
// Before that, it keeps all mutexes locked until each lease is renewed, and counts goroutines and
// connections.
func BenchmarkThousandLocks(b *testing.B) {
	const n = 1000
	c, rdb := realClient(b)
	all := make([]*client.Lock, n)
	each := func(do func(i int) error) {
		var wg sync.WaitGroup
		for i := range all {
			wg.Go(func() {
				if err := do(i); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	lock := func(i int) (err error) {
		all[i], err = c.Lock(bg, fmt.Sprint("job", i), client.WithTTL(2*time.Second), client.WithTransition(10*time.Second))
		return err
	}
	unlock := func(i int) error { return all[i].Unlock(bg) }

	must(b, rdb.Ping(bg).Err())
	before := runtime.NumGoroutine() - connections(b, rdb) // minus those of the server
	each(lock)
	time.Sleep(3 * time.Second) // each Lock has renewed its lease and subscribed
	conns := connections(b, rdb)
	goroutines := runtime.NumGoroutine() - conns - before
	each(unlock)

	for b.Loop() {
		each(lock)
		each(unlock)
	}
	b.ReportMetric(float64(goroutines)/n, "goroutines/lock")
	b.ReportMetric(float64(conns), "connections")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/n, "µs/lock+unlock")
}

func connections(b *testing.B, rdb *redis.Client) int {
	b.Helper()
	list, err := rdb.ClientList(bg).Result()
	must(b, err)
	return strings.Count(list, "\n")
}
