package tests

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// What a server in front of a store costs: the same load through it and straight at
// the store, one after the other in the same run, by the same number of clients.
//
//	go test -run '^$' -bench Proxy ./tests
//
// Straight at the store means as Simba's own contenders do it: direct_*_test.go.

const (
	benchClients  = 64
	benchRounds   = 3 // of each, in turn: a machine is not equally fast all the time
	benchWarm     = 200 * time.Millisecond
	benchTime     = time.Second
	benchHandoffs = 300
	benchLease    = 10_000 // ms
)

// contender takes and gives back one mutex.
type contender interface {
	// pair returns when it has owned the mutex and given it back. When stop is
	// closed it may return early, with an error or not.
	pair(stop <-chan struct{}) error
	close()
}

// a load is 64 clients, with a mutex each or one for all.
var loads = []struct {
	name string
	hot  bool
}{{"uncontended", false}, {"hot", true}}

func BenchmarkProxy(b *testing.B) {
	for _, engine := range sharedEngines {
		b.Run(engine, func(b *testing.B) {
			s := openShared(b, engine)
			direct := directTo(b, s)
			server := s.serve(b)
			for _, l := range loads {
				b.Run(l.name, func(b *testing.B) {
					var through, straight float64
					for range b.N * benchRounds {
						straight += rate(b, l.hot, direct)
						through += rate(b, l.hot, func(b *testing.B, mutex, id string, hot bool) contender {
							return newThrough(b, server, mutex, id, hot)
						})
					}
					b.ReportMetric(straight/float64(b.N*benchRounds), "direct-pairs/s")
					b.ReportMetric(through/float64(b.N*benchRounds), "proxy-pairs/s")
					b.ReportMetric(through/straight, "ratio")
					b.ReportMetric(0, "ns/op")
				})
			}
			b.Run("handoff", func(b *testing.B) {
				var took []time.Duration
				for range b.N {
					took = append(took, handoffs(b, server)...)
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-p50")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
				b.ReportMetric(0, "ns/op")
			})
		})
	}
}

// connector makes one of the clients of a load.
type connector func(b *testing.B, mutex, id string, hot bool) contender

var benchRun atomic.Int64 // so that no mutex has a past

// rate returns the pairs a second of a load.
func rate(b *testing.B, hot bool, connect connector) float64 {
	b.Helper()
	run := benchRun.Add(1)
	all := make([]contender, benchClients)
	for i := range all {
		mutex := fmt.Sprintf("bench-%d-%d", run, i)
		if hot {
			mutex = fmt.Sprintf("bench-%d", run)
		}
		all[i] = connect(b, mutex, fmt.Sprintf("c%d", i), hot)
	}
	var done atomic.Int64
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for _, c := range all {
		clients.Go(func() {
			defer c.close()
			for {
				err := c.pair(stop)
				select {
				case <-stop:
					return
				default:
				}
				if err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	<-time.After(benchWarm)
	from, began := done.Load(), time.Now()
	<-time.After(benchTime)
	pairs, took := done.Load()-from, time.Since(began)
	close(stop)
	clients.Wait()
	return float64(pairs) / took.Seconds()
}

// through is a contender that asks a simba-resp.
type through struct {
	conn      redis.Conn
	mutex, id string
	options   []any
}

func newThrough(b *testing.B, s *server, mutex, id string, hot bool) contender {
	c := &through{conn: conn(b, s), mutex: mutex, id: id}
	if hot {
		c.options = []any{"WAIT", 0}
	}
	return c
}

func (c *through) pair(<-chan struct{}) error {
	got, err := toRecord(c.conn.Do("SIMBA.ACQUIRE", append([]any{c.mutex, c.id, benchLease}, c.options...)...))
	if err != nil {
		return err
	}
	if got["status"] != "acquired" {
		return fmt.Errorf("ACQUIRE %s by %s: %v", c.mutex, c.id, got)
	}
	if n, err := redis.Int(c.conn.Do("SIMBA.RELEASE", c.mutex, c.id)); err != nil || n != 1 {
		return fmt.Errorf("RELEASE %s by %s: %d, %w", c.mutex, c.id, n, err)
	}
	return nil
}

func (c *through) close() { c.conn.Close() }

// handoffs returns how long each of many handoffs takes between two clients of one
// server: from before RELEASE is sent until the waiter has its reply.
func handoffs(b *testing.B, s *server) []time.Duration {
	b.Helper()
	mutex := fmt.Sprintf("handoff-%d", benchRun.Add(1))
	owner, waiter := conn(b, s), conn(b, s)
	owning, waits := "a", "b"
	ask(b, owner, "SIMBA.ACQUIRE", mutex, owning, 600_000)
	took := make([]time.Duration, benchHandoffs)
	for i := range took {
		var granted time.Time
		var waited sync.WaitGroup
		waited.Go(func() {
			got, err := toRecord(waiter.Do("SIMBA.ACQUIRE", mutex, waits, 600_000, "WAIT", 0))
			granted = time.Now()
			if err != nil || got["status"] != "acquired" {
				b.Errorf("the waiter got %v, %v", got, err)
			}
		})
		blocked(b, s.addr, 1)
		released := time.Now()
		yes(b, owner, "SIMBA.RELEASE", mutex, owning)
		waited.Wait()
		took[i] = granted.Sub(released)
		owner, waiter, owning, waits = waiter, owner, waits, owning
	}
	return took
}
