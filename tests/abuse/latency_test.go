package abuse

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/certs"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// BenchmarkLatency measures how an abuse delays other clients. It times pairs of ACQUIRE and
// RELEASE of a free mutex, without and with the abuse, and reports the ratio.
//
// The attacker gets only the processor time that the server and the benchmark leave. So the figure
// shows the work that the attack causes in the server.
//
//	go test -run '^$' -bench Latency -benchtime 3x ./tests/abuse
func BenchmarkLatency(b *testing.B) {
	cert, key := certs.NewAuthority(b, "test CA").Sign(b, certs.Leaf{}).Write(b, b.TempDir(), "server")
	overTLS := []string{"--tls-addr", "127.0.0.1:0", "--tls-cert-file", cert, "--tls-key-file", key}
	for _, a := range attacks {
		b.Run(a.name, func(b *testing.B) {
			var calm, abused []time.Duration
			for range b.N {
				s := simbatest.Start(b, append(overTLS, "--maxclients", "12000", "--requirepass", a.password)...)
				v := watched(b, s.Addr, a.password, s.Log)
				v.dismiss()
				calm = append(calm, latencies(b, v)...)
				addr := v.addr
				if a.tls {
					addr = tlsAddr.FindStringSubmatch(s.Log())[1]
				}
				attacker := simbatest.Run(b, testBinary(b), "-attack", a.name, "-victim", addr)
				attacker.Background()
				v.until("the attack has begun", func() bool { return attacker.Output() != "" })
				abused = append(abused, latencies(b, v)...)
				attacker.Kill()
				v.dismiss()
			}
			slices.Sort(calm)
			slices.Sort(abused)
			for _, q := range []struct {
				name string
				at   float64
			}{{"p50", 0.5}, {"p99", 0.99}} {
				c, u := quantile(calm, q.at), quantile(abused, q.at)
				b.ReportMetric(float64(c.Microseconds()), q.name+"-calm-µs")
				b.ReportMetric(float64(u.Microseconds()), q.name+"-abused-µs")
				b.ReportMetric(float64(u)/float64(c), q.name+"-ratio")
			}
		})
	}
}

// tlsAddr finds the TLS address in the log line of a ready server.
var tlsAddr = regexp.MustCompile(`msg=ready .*tls=(\S+)`)

// latencies measures 5,000 latencies, or as many as possible in 10 s.
func latencies(b *testing.B, v *victim) []time.Duration {
	b.Helper()
	c := v.client()
	defer c.Close()
	var took []time.Duration
	for end := time.Now().Add(10 * time.Second); len(took) < 5000 && time.Now().Before(end); {
		began := time.Now()
		if r, err := simbatest.ToRecord(c.Do("SIMBA.ACQUIRE", "measured", "c", 10_000)); err != nil || r["status"] != "acquired" {
			b.Fatalf("SIMBA.ACQUIRE returns %v, %v, want acquired", r, err)
		}
		if n, err := redis.Int(c.Do("SIMBA.RELEASE", "measured", "c")); err != nil || n != 1 {
			b.Fatalf("SIMBA.RELEASE returns %v, %v, want 1", n, err)
		}
		took = append(took, time.Since(began))
	}
	return took
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[int(q*float64(len(sorted)-1))]
}
