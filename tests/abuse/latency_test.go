package abuse

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// BenchmarkLatency measures what an abuse costs the others: how long ACQUIRE and RELEASE of a free mutex
// take together, calm and under the abuse, by turns in one run, and the ratio of the two.
//
//	go test -run '^$' -bench Latency -benchtime 1x ./tests/abuse
func BenchmarkLatency(b *testing.B) {
	abuses := []struct {
		name  string
		begin func(v *victim, on *atomic.Bool, wg *sync.WaitGroup)
	}{
		{"10000Idle", func(v *victim, _ *atomic.Bool, _ *sync.WaitGroup) { v.raws(10_000) }},
		{"1000ByteByByte", byteByByte},
		{"Churn", churn},
		{"Pipeline", func(v *victim, on *atomic.Bool, wg *sync.WaitGroup) {
			flood(v, on, wg, strings.Repeat("PING\r\n", 10_000))
		}},
		{"PipelinedLocks", func(v *victim, on *atomic.Bool, wg *sync.WaitGroup) {
			flood(v, on, wg, strings.Repeat(words("SIMBA.ACQUIRE", "flooded", "c", 1000, "NOQUEUE"), 1000))
		}},
		{"Scan", func(v *victim, on *atomic.Bool, wg *sync.WaitGroup) {
			fill(v.t, v, 20_000)
			flood(v, on, wg, strings.Repeat(words("KEYS", "*"), 2))
		}},
		{"ScriptErrors", func(v *victim, on *atomic.Bool, wg *sync.WaitGroup) {
			flood(v, on, wg, strings.Repeat(words("EVAL", "error({err='X x'})", 0), 100))
		}},
		{"DeepTransactions", func(v *victim, on *atomic.Bool, wg *sync.WaitGroup) {
			flood(v, on, wg, "MULTI\r\n"+strings.Repeat(words("SET", "k", "v", "PX", 1000), 1000)+"EXEC\r\n")
		}},
		{"10000Patterns", patterns},
	}
	for _, a := range abuses {
		b.Run(a.name, func(b *testing.B) {
			for range b.N {
				v := attacked(b, "--maxclients", "12000")
				v.dismiss()
				calm := latencies(b, v)
				var on atomic.Bool
				var wg sync.WaitGroup
				on.Store(true)
				a.begin(v, &on, &wg)
				abused := latencies(b, v)
				on.Store(false)
				wg.Wait()
				for _, q := range []struct {
					name string
					at   float64
				}{{"p50", 0.5}, {"p99", 0.99}} {
					c, u := quantile(calm, q.at), quantile(abused, q.at)
					b.ReportMetric(float64(c.Microseconds()), q.name+"-calm-µs")
					b.ReportMetric(float64(u.Microseconds()), q.name+"-abused-µs")
					b.ReportMetric(float64(u)/float64(c), q.name+"-ratio")
				}
			}
		})
	}
}

// latencies measures 2,000 times, or as often as is possible in 10 s.
func latencies(b *testing.B, v *victim) []time.Duration {
	b.Helper()
	c := v.client()
	defer c.Close()
	var took []time.Duration
	for end := time.Now().Add(10 * time.Second); len(took) < 2000 && time.Now().Before(end); {
		began := time.Now()
		if r, err := asRecord(c.Do("SIMBA.ACQUIRE", "measured", "c", 10_000)); err != nil || r["status"] != "acquired" {
			b.Fatal(r, err)
		}
		if n, err := redis.Int(c.Do("SIMBA.RELEASE", "measured", "c")); err != nil || n != 1 {
			b.Fatal(n, err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[int(q*float64(len(sorted)-1))]
}

// flood sends the same bytes over and over, from one connection that reads what it is answered.
func flood(v *victim, on *atomic.Bool, wg *sync.WaitGroup, command string) {
	c := v.raw()
	wg.Go(func() { _, _ = io.Copy(io.Discard, c.in) })
	wg.Go(func() {
		defer c.reset()
		for on.Load() && c.send(command) == nil {
		}
	})
}

func byteByByte(v *victim, on *atomic.Bool, wg *sync.WaitGroup) {
	conns := v.raws(1000)
	wg.Go(func() {
		for i := 0; on.Load(); i++ {
			_ = conns[i%len(conns)].send("x") // of a line without end
			time.Sleep(100 * time.Microsecond)
		}
	})
}

func churn(v *victim, on *atomic.Bool, wg *sync.WaitGroup) {
	for range 4 {
		wg.Go(func() {
			for on.Load() {
				if c, err := v.dialRaw(); err == nil {
					_, _ = c.ask("PING\r\n")
					c.reset()
				}
			}
		})
	}
}

func patterns(v *victim, _ *atomic.Bool, _ *sync.WaitGroup) {
	c := v.raw()
	for i := range 10 {
		args := []any{"PSUBSCRIBE"}
		for j := range 1000 {
			args = append(args, fmt.Sprintf("simba:{other%d}*", i*1000+j))
		}
		if err := c.send(words(args...)); err != nil {
			v.t.Fatal(err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, c.in) }() // until the test closes it
	v.until("all are there", func() bool { return v.info("pubsub_patterns") == 10_000 })
}
