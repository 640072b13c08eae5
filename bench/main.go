// Bench measures simba-resp beside what one would take instead, in one run on one machine, and
// writes the report docs/BENCHMARKS.md with its picture.
//
//	make bench
//
// Each load looks that never two own a mutex while it measures. The servers and stores are started
// on private ports with data on the disk below -dir; what is not installed is named in the report.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

var (
	out    = flag.String("out", "../docs/BENCHMARKS.md", "the report to write")
	dir    = flag.String("dir", "", "folder for the data of all servers; empty: the temporary folder")
	rounds = flag.Int("rounds", 3, "how often each load runs on each server")
	during = flag.Duration("time", time.Second, "how long a load runs each time")
	only   = flag.String("only", "", "measure only servers whose name has this text")
	most   = flag.Int("mutexes", 1_000_000, "how many mutexes are held to see what one costs")
	crowd  = flag.Int("blocked", 10_000, "how many clients are blocked to see what one costs")
)

func main() { os.Exit(simbatest.Main(program{})) }

type program struct{}

// Run measures; it returns the process' exit code.
func (program) Run() int {
	began := time.Now()
	b := &bench{
		results: new(results), sites: make(map[string]*site), during: *during,
		say: func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
	}
	err := play(*dir, func(st *stage) error {
		b.st = st
		b.open()
		for round := range *rounds {
			b.say("round %d of %d", round+1, *rounds)
			b.pingpong()
			b.tenures()
			b.pipelines()
			b.deaths()
		}
		return nil
	})
	if err == nil {
		err = play(*dir, func(st *stage) error {
			b.st = st
			b.crowd(*most)
			b.waiting(*crowd)
			return nil
		})
	}
	if err == nil {
		picture := strings.ToLower(strings.TrimSuffix(filepath.Base(*out), ".md")) + ".svg"
		err = b.writeChart(filepath.Join(filepath.Dir(*out), picture))
		if err == nil {
			err = b.writeReport(*out, picture, fmt.Sprintf("%d rounds of %v; all took %v", *rounds, *during, time.Since(began).Round(time.Second)))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	b.say("")
	for _, a := range b.aims() {
		b.say("%-100s %-18s %10s  %s", a.what, a.bound, number3(a.value), strings.Trim(a.verdict(), "*"))
	}
	if len(b.errs) > 0 {
		b.say("\n%d could not be measured:\n%s", len(b.errs), strings.Join(b.errs, "\n"))
		return 1
	}
	return 0
}

// open starts the subjects. They run side by side, and only one has something to do at a time.
func (b *bench) open() {
	chosen := slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool { return !strings.Contains(s.name, *only) })
	for _, s := range chosen {
		inner := &stage{dir: b.st.dir}
		b.st.Cleanup(inner.strike)
		site, err := inner.try(s.start)
		if err != nil {
			b.fault(s.name, err)
			continue
		}
		b.sites[s.name] = site
	}
}
