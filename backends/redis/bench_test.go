package redis

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/seeds"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// spread runs pair b.N times, by concurrent clients.
func spread(b *testing.B, clients int, pair func(client int)) {
	b.ResetTimer()
	start := time.Now()
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for range (b.N + clients - 1) / clients {
				pair(i)
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "pairs/s")
}

// BenchmarkUncontended measures acquire and release. Each client has its own mutex. The benchmark
// "direct" sends Simba's scripts to the same Redis.
func BenchmarkUncontended(b *testing.B) {
	s := stores.Redis(b)
	for _, clients := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("engine/%d", clients), func(b *testing.B) {
			e := serve(b, "redis://"+s.Addr, noNotices{})
			ctx := context.Background()
			spread(b, clients, func(i int) {
				m, c := fmt.Sprintf("m%d", i), fmt.Sprintf("c%d", i)
				if o, _, err := e.Acquire(ctx, simba.AcquireRequest{Mutex: m, Contender: c, TTL: time.Minute}); err != nil || o.Status != simba.StatusAcquired {
					b.Errorf("ACQUIRE of %s: %+v %v; want acquired", m, o, err)
				}
				if ok, _, err := e.Release(ctx, simba.ReleaseRequest{Mutex: m, Contender: c}); err != nil || !ok {
					b.Errorf("RELEASE of %s: %v %v; want true", m, ok, err)
				}
			})
		})
		b.Run(fmt.Sprintf("direct/%d", clients), func(b *testing.B) {
			c := redis.NewClient(&redis.Options{Addr: s.Addr, PoolSize: clients, Protocol: 2})
			defer c.Close()
			acquire, release := redis.NewScript(seeds.SimbaAcquire), redis.NewScript(seeds.SimbaRelease)
			ctx := context.Background()
			spread(b, clients, func(i int) {
				key, id := fmt.Sprintf("simba:{d%d}", i), fmt.Sprintf("c%d", i)
				if err := acquire.Run(ctx, c, []string{key}, id, 60000).Err(); err != nil {
					b.Error(err)
				}
				if err := release.Run(ctx, c, []string{key}, id).Err(); err != nil {
					b.Error(err)
				}
			})
		})
	}
}

// BenchmarkHandoff measures the time from a release until the next waiter, at the same server, has
// the outcome.
func BenchmarkHandoff(b *testing.B) {
	s := stores.Redis(b)
	e := serve(b, "redis://"+s.Addr, noNotices{})
	ctx := context.Background()
	if _, _, err := e.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "c0", TTL: time.Minute}); err != nil {
		b.Fatal(err)
	}
	var total time.Duration
	for i := range b.N {
		w := newWaiter()
		_, ticket, err := e.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: fmt.Sprintf("c%d", i+1), TTL: time.Minute, Waiter: w})
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		if _, _, err := e.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: fmt.Sprintf("c%d", i)}); err != nil {
			b.Fatal(err)
		}
		<-w.woken
		if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusAcquired {
			b.Fatalf("End of the waiter: %+v %v; want acquired", o, err)
		}
		total += time.Since(start)
	}
	b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs/handoff")
}

// noNotices is a simba.Notices without subscribers.
type noNotices struct{}

func (noNotices) Publish(string, string) int    { return 0 }
func (noNotices) Subscribed(string) bool        { return false }
func (noNotices) SubscribedPattern(string) bool { return false }
func (noNotices) Any() bool                     { return false }
