// Package abuse proves with real servers that hostile or careless clients harm only themselves.
// During the abuse others are served, and no mutex has two owners. The memory of the server is
// bounded. After the abuse the server is as it was before.
//
// Each test has a victim with bystanders, an abuse, and three checks:
//
//	v := attacked(t)   a server, its figures, and bystanders that run until the end
//	…                  the abuse
//	v.servesOthers()   each bystander is served during the abuse
//	v.costsAtMost(…)   the highest memory of the server
//	v.recovers()       goroutines, files and heap are as before
//
// The kernel counts the memory. The race detector multiplies it, so bounds are generous, and the
// tests log the figures. Latencies depend on the machine: BenchmarkLatency measures them, and no
// test asserts them.
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
