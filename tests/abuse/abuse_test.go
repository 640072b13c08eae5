// Package abuse tests with real servers that hostile or careless clients harm only themselves.
// Meanwhile the server serves other clients, and no mutex has two owners. Afterwards the server
// holds no more than before.
//
// Each test has a victim (a server), bystanders (well-behaved clients), and an abuse:
//
//	v := attacked(t)   a server, and bystanders that run until the end
//	…                  the abuse
//	v.servesOthers()   each bystander is served during the abuse
//	v.costsAtMost(…)   bounds the highest memory of the server
//	v.recovers()       goroutines, files and heap are as before
//
// The race detector multiplies the memory of the server, so the bounds are generous, and the tests
// log the figures. Latencies depend on the machine, so only BenchmarkLatency measures them.
package abuse

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *attackName != "" {
		fmt.Fprintln(os.Stderr, attackForever())
		os.Exit(1)
	}
	os.Exit(simbatest.Main(m))
}
