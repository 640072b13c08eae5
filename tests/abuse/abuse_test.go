// Package abuse proves that clients who are hostile or careless harm nobody but themselves, with real
// servers: while they are at it others are served and no mutex has two owners; what a client can make
// the server hold is bounded; and when they are gone the server is as it was before.
//
// Every test is the same in outline: a victim with bystanders, an abuse, and three questions.
//
//	v := attacked(t)   a server, what it used at first, and bystanders that go on until the end
//	…                  the abuse
//	v.servesOthers()   each bystander gets on while the abuse stands
//	v.costsAtMost(…)   of memory, at the highest
//	v.recovers()       goroutines, files and heap are what they were
//
// Memory is what the kernel counts, with the race detector some times as much; so its bounds are
// generous, and the figures themselves are in the tests' logs. Latencies depend on the machine: they are
// measured (BenchmarkLatency), not asserted.
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
