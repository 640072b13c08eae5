package zookeeper_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/backends/zookeeper"
)

const clients = 64

// spread distributes b.N calls of round over the clients. It reports pairs: each call acquires and
// releases a mutex.
func spread(b *testing.B, round func(client int) error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	b.ResetTimer()
	for i := range clients {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := round(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}

// recipe acquires and releases a mutex as Curator's LeaderLatch does, without waiting.
func recipe(c *zk.Conn, mutex string) error {
	path, err := c.CreateProtectedEphemeralSequential("/simba/"+mutex+"/latch-", []byte("contender"), zk.WorldACL(zk.PermAll))
	if err != nil {
		return err
	}
	if _, _, err = c.Children("/simba/" + mutex); err != nil {
		return err
	}
	return c.Delete(path, -1)
}

// BenchmarkUncontended measures acquire and release by 64 clients, each with its own mutex.
func BenchmarkUncontended(b *testing.B) {
	srv := stores.ZooKeeper(b)
	first := raw(b, srv.Addr)
	first.Create("/simba", nil, 0, zk.WorldACL(zk.PermAll))
	var conns []*zk.Conn
	for i := range clients {
		conns = append(conns, raw(b, srv.Addr))
		for _, kind := range []string{"ours", "shared", "own"} {
			first.Create(fmt.Sprintf("/simba/%s-%d", kind, i), nil, 0, zk.WorldACL(zk.PermAll))
		}
	}
	engine := open(b, zookeeper.Options{Servers: srv.Addr})
	for n := range 5000 { // warm the ensemble's JVM up
		if err := recipe(first, fmt.Sprintf("shared-%d", n%clients)); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("engine", func(b *testing.B) {
		spread(b, func(i int) error {
			m := fmt.Sprintf("ours-%d", i)
			out, _, err := engine.Acquire(ctx, simba.AcquireRequest{Mutex: m, Contender: "contender", TTL: time.Minute})
			if err == nil && out.Status != simba.StatusAcquired {
				err = fmt.Errorf("the outcome of ACQUIRE is %+v, want acquired", out)
			}
			if err == nil {
				_, _, err = engine.Release(ctx, simba.ReleaseRequest{Mutex: m, Contender: "contender"})
			}
			return err
		})
	})
	b.Run("direct, one connection", func(b *testing.B) {
		spread(b, func(i int) error { return recipe(first, fmt.Sprintf("shared-%d", i)) })
	})
	b.Run("direct, a connection each", func(b *testing.B) {
		spread(b, func(i int) error { return recipe(conns[i], fmt.Sprintf("own-%d", i)) })
	})
}

// BenchmarkHot measures acquire and release by 64 clients of one mutex.
func BenchmarkHot(b *testing.B) {
	srv := stores.ZooKeeper(b)
	engine := open(b, zookeeper.Options{Servers: srv.Addr})
	b.Run("engine", func(b *testing.B) {
		spread(b, func(i int) error {
			id := fmt.Sprintf("contender-%d", i)
			w := newWaiter()
			out, ticket, err := engine.Acquire(ctx, simba.AcquireRequest{Mutex: "hot", Contender: id, TTL: time.Minute, Waiter: w})
			if err == nil && out.Status == simba.StatusWaiting {
				<-w
				out, err = ticket.End(simba.EndWoken)
			}
			if err == nil && out.Status != simba.StatusAcquired {
				err = fmt.Errorf("the outcome of ACQUIRE is %+v, want acquired", out)
			}
			if err == nil {
				_, _, err = engine.Release(ctx, simba.ReleaseRequest{Mutex: "hot", Contender: id})
			}
			return err
		})
	})
	c := raw(b, srv.Addr)
	b.Run("direct, one connection", func(b *testing.B) {
		spread(b, func(int) error {
			l := zk.NewLock(c, "/simba/direct", zk.WorldACL(zk.PermAll))
			if err := l.Lock(); err != nil {
				return err
			}
			return l.Unlock()
		})
	})
}

// BenchmarkHandoff measures the time from a RELEASE until the next waiter of the same server is
// woken.
func BenchmarkHandoff(b *testing.B) {
	srv := stores.ZooKeeper(b)
	engine := open(b, zookeeper.Options{Servers: srv.Addr})
	take(b, engine, "m", "0", time.Minute)
	var total time.Duration
	for i := range b.N {
		ticket, w := block(b, engine, "m", fmt.Sprint(i+1), time.Minute)
		start := time.Now()
		giveUp(b, engine, "m", fmt.Sprint(i))
		<-w
		total += time.Since(start)
		if out, err := ticket.End(simba.EndWoken); err != nil || out.Status != simba.StatusAcquired {
			b.Fatalf("the end of the waiter's wait: %+v, %v; want acquired", out, err)
		}
	}
	b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs/handoff")
}
