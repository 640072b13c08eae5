// Bench measures simba-resp and its alternatives in one run on one machine. It writes the page
// docs/development/benchmarks.md and the pictures of the page.
//
//	make bench
//
// It starts servers and stores on private ports, with their data in the folder -dir. The page lists
// programs that are not installed.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

var (
	out    = flag.String("out", "../docs/development/benchmarks.md", "the page to write, with its pictures beside it")
	dir    = flag.String("dir", "../bin", "folder for the data of all servers, on the disk that is measured")
	rounds = flag.Int("rounds", 6, "how often each load runs on each server; odd rounds reverse the order, so use an even number")
	during = flag.Duration("time", time.Second, "how long a load runs each time")
	only   = flag.String("only", "", "measure only servers whose name has this text")
	loads  = flag.String("load", "", "run only loads whose name has this text, such as \"64 clients\" or handoff, and no other measurements")
	other  = flag.String("other", "", "program of another build of simba-resp, which runs each load beside this one, on the same store")
	kills  = flag.Int("kills", 10, "how often kill -9 ends the leader of three servers; a fifth as often it hands over")
	pairs  = flag.Int("monitoring", 0, "measure only the cost of metrics, with this many pairs of loads, and write no page")
	many   = flag.Int("mutexes", 1_000_000, "number of held mutexes, for the cost of each")
)

func main() { os.Exit(simbatest.Main(program{})) }

type program struct{}

func (program) Run() int {
	began := time.Now()
	b := &bench{
		results: newResults(*rounds), sites: make(map[string]*site),
		wanted: func(subject string) bool { return strings.Contains(subject, *only) },
		say:    func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
	}
	data, disk, err := prepare(*dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	b.dir = data
	b.say("%s", disk)
	if *pairs > 0 {
		b.try("monitoring", func(tb *testbed) { b.monitoring(tb, *pairs) })
		return len(b.faults)
	}
	b.try("the loads", func(tb *testbed) {
		b.tb = tb
		b.start(subjects)
		b.startSlowDisks()
		for round := range *rounds {
			b.say("\nround %d of %d, after %v", round+1, *rounds, time.Since(began).Round(time.Second))
			b.round(round)
			if *loads == "" {
				b.pipelines(round)
				b.probes(round)
			}
		}
	})
	b.try("three servers", func(tb *testbed) {
		b.tb = tb
		b.start(threes)
		for round := range *rounds {
			b.say("\nthree servers, round %d of %d, after %v", round+1, *rounds, time.Since(began).Round(time.Second))
			b.compare(round, threeComparisons(round))
		}
	})
	if *loads == "" {
		b.say("\ntakeovers, after %v", time.Since(began).Round(time.Second))
		b.takeovers()
	}
	if b.wanted(always) && *loads == "" {
		b.say("\n%d held mutexes, after %v", *many, time.Since(began).Round(time.Second))
		b.try("held mutexes", func(tb *testbed) { b.hold(tb, *many) })
	}
	run := fmt.Sprintf("each load %d times for %v, %v in all", *rounds, *during, time.Since(began).Round(time.Second))
	if err := b.writePage(*out, disk, run); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	b.say("")
	b.compareBuilds()
	for _, a := range b.aims() {
		b.say("%-106s %-14s %8s  %-12s %s", a.what, a.bound(), a.measured(), a.verdict(), a.spread())
	}
	for _, f := range b.faults {
		b.say("FAILED %v", f)
	}
	if len(b.faults) > 0 {
		return 1
	}
	return 0
}

// try runs f. If f fails, try records the failure, and the run continues.
func (b *bench) try(what string, f func(*testbed)) {
	if err := withTestbed(b.dir, f); err != nil {
		b.failed(what, err)
	}
}
