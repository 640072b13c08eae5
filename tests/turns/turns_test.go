package turns

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

var bg = context.Background()

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }

// BenchmarkByTurns compares pairs of Lock and Unlock of the client, with the same commands sent by
// go-redis alone, and with redislock on a Redis without a disk. All take turns in one run. The
// metrics are the medians of 6 rounds.
//
//	go test -run '^$' -bench ByTurns -benchtime 1x ./tests/turns
func BenchmarkByTurns(b *testing.B) {
	const rounds, length = 6, time.Second
	server := simbatest.Start(b, "--durability", "memory")
	store := stores.Redis(b, "--save", "", "--appendonly", "no")
	connect := func(addr string) *redis.Client {
		rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, PoolSize: 40})
		b.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	raw, simba, onRedis := connect(server.Addr), connect(server.Addr), redislock.New(connect(store.Addr))
	c, err := client.New(simba, client.Options{})
	simbatest.Must(b, err)
	defer c.Close()
	var ids atomic.Int64
	subjects := []func(key string) error{
		func(key string) error { // raw
			id := fmt.Sprint("raw", ids.Add(1))
			if err := raw.Do(bg, "simba.acquire", key, id, 12000, "wait", 0).Err(); err != nil {
				return err
			}
			return raw.Do(bg, "simba.release", key, id).Err()
		},
		func(key string) error { // client
			l, err := c.Lock(bg, key)
			if err != nil {
				return err
			}
			return l.Unlock(bg)
		},
		func(key string) error { // redislock
			l, err := onRedis.Obtain(bg, key, 12*time.Second, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)})
			if err != nil {
				return err
			}
			return l.Release(bg)
		},
	}
	for _, load := range []struct{ goroutines, keys int }{{1, 1}, {16, 16}, {8, 1}} {
		b.Run(fmt.Sprintf("%d on %d", load.goroutines, load.keys), func(b *testing.B) {
			var toRaw, toRedislock []float64
			for range rounds {
				var rates []float64
				for _, pair := range subjects {
					rates = append(rates, rate(b, load.goroutines, load.keys, length, pair))
				}
				toRaw, toRedislock = append(toRaw, rates[1]/rates[0]), append(toRedislock, rates[1]/rates[2])
			}
			slices.Sort(toRaw)
			slices.Sort(toRedislock)
			b.ReportMetric(toRaw[rounds/2], "of-raw")
			b.ReportMetric(toRedislock[rounds/2], "of-redislock")
			b.ReportMetric(testing.AllocsPerRun(200, func() { simbatest.Must(b, subjects[1]("allocs")) }), "allocs/pair")
		})
	}
}

// rate returns the pairs a second.
func rate(b *testing.B, goroutines, keys int, length time.Duration, pair func(string) error) float64 {
	ctx, cancel := context.WithTimeout(bg, length)
	defer cancel()
	began := time.Now()
	var n atomic.Int64
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := pair(fmt.Sprint("key", i%keys)); err != nil {
					b.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	return float64(n.Load()) / time.Since(began).Seconds()
}
