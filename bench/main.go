// Bench measures simba-resp beside what one would take instead, in one run on one machine, and
// writes the page docs/BENCHMARKS.md with its pictures.
//
//	make bench
//
// Each load looks that never two own a mutex while it measures. The servers and stores are started
// on private ports with data on the disk below -dir; what is not installed is named on the page.
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
	out    = flag.String("out", "../docs/BENCHMARKS.md", "the page to write, with its pictures beside it")
	dir    = flag.String("dir", "", "folder for the data of all servers; empty: the temporary folder")
	rounds = flag.Int("rounds", 7, "how often each load runs on each server")
	during = flag.Duration("time", time.Second, "how long a load runs each time")
	only   = flag.String("only", "", "measure only servers whose name has this text")
	many   = flag.Int("mutexes", 1_000_000, "how many mutexes are held to see what one costs")
)

func main() { os.Exit(simbatest.Main(program{})) }

type program struct{}

// Run measures; it returns the process' exit code.
func (program) Run() int {
	began := time.Now()
	b := &bench{
		results: newResults(), sites: make(map[string]*site), during: *during,
		say: func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
	}
	err := play(*dir, func(st *stage) error {
		b.st = st
		b.start(func(name string) bool { return strings.Contains(name, *only) })
		b.startSlowDisks()
		for round := range *rounds {
			b.say("\nround %d of %d", round+1, *rounds)
			b.round(round)
			b.pipelines(round)
			b.probes(round)
		}
		return nil
	})
	if err != nil {
		b.failed("the loads", err)
	}
	b.say("\n%d held mutexes", *many)
	if err := play(*dir, func(st *stage) error { return b.restarts(st, *many, *rounds) }); err != nil {
		b.failed("held mutexes", err)
	}
	run := fmt.Sprintf("%d rounds of %v, %v in all", *rounds, *during, time.Since(began).Round(time.Second))
	if err := b.writePage(*out, run); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	b.say("")
	for _, a := range b.aims() {
		b.say("%-106s %-14s %8s  %-12s %s", a.what, a.bound(), a.measured(), a.verdict(), a.rounds())
	}
	if len(b.errs) > 0 {
		b.say("\n%d could not be measured:\n%s", len(b.errs), strings.Join(b.errs, "\n"))
		return 1
	}
	return 0
}
