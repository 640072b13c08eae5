// Package chaos checks that the real server is linearizable under faults, on each engine with its
// real store.
//
// Clients contend for mutexes while faults happen: links break, delay or drop data, and servers and
// stores are killed or frozen. Then three judges check the records. Porcupine looks for an order of
// all requests and replies that keeps the rules of a fenced mutex (type rules). The second judge
// compares the tenures that contenders knew of: they must not overlap. In the history of each
// server, the third judge checks that no two tenures of a mutex overlap.
//
// Meanwhile wrappers contend for a mutex, and are killed, frozen and cut off with their commands.
// By the timestamps of these commands, no two may ever run at once.
//
// The short form is part of make test. The long form runs for a given time:
//
//	make chaos DURATION=10m
package chaos

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

var (
	duration = flag.Duration("duration", 0, "how long to inject all faults, in random order; 0 = inject each fault of the short form once")
	only     = flag.String("engine", "", "the only engine to test; empty = all of them")
	seed     = flag.Uint64("seed", 0, "seed of the random order; 0 = a random seed")
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }

// shortForm has the faults of the short form. Each engine gets those that are possible on it.
var shortForm = []string{
	"server killed", "server stopped, longer than leases", "clients cut", "clients blackholed", "clients delayed",
	"store killed", "store stopped", "store cut", "store blackholed", "store delayed",
	"primary demoted, old connections kept", "store misconfigured",
	"leader killed", "leader stopped", "leader cut off", "all members killed", "disk of the leader lost",
}

func TestTenuresAreLinearizableUnderFaults(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed %d", *seed)
	engines := []string{"embedded", "cluster", "redis", "mysql", "postgres", "zookeeper"}
	if *duration > 0 {
		engines = append(engines, "embedded memory", "embedded async")
	}
	if *only != "" {
		engines = []string{*only}
	}
	var all table
	t.Cleanup(func() { t.Log("\n" + all.String()) })
	for i, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			if engine != "cluster" { // beside its members, the others would be too slow for their windows
				t.Parallel()
			}
			injectFaults(t, engine, rand.New(rand.NewPCG(*seed, uint64(i))), &all)
		})
	}
}

// injectFaults runs one window (see type window) for each fault. If -duration is set, it repeats
// all windows until that time is over.
func injectFaults(t *testing.T, engine string, rng *rand.Rand, all *table) {
	w := open(t, engine)
	judge := runWrappers(t, w, rand.New(rand.NewPCG(rng.Uint64(), 0)))
	defer judge()
	began := time.Now()
	n := &window{t: t, w: w, rng: rng}
	for {
		chosen := slices.DeleteFunc(slices.Concat(faults, memberFaults), func(f fault) bool {
			return !f.possible(w) || *duration == 0 && !slices.Contains(shortForm, f.name)
		})
		rng.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		for _, f := range chosen {
			n.longer = 1
			if *duration > 0 {
				if time.Since(began) > *duration {
					return
				}
				n.longer = 1 + 2*rng.Float64()
			}
			v := n.untilItCounts(f)
			all.add(engine, f.name, v)
			for _, problem := range v.violations {
				t.Errorf("%s: %s", f.name, problem)
			}
			if v.unknown > 0 {
				t.Errorf("%s: porcupine found no result for %d histories in %v each", f.name, v.unknown, checkTimeout)
			}
			if t.Failed() {
				for i, s := range w.servers {
					t.Logf("server %d:\n%s", i, s.Log())
				}
				return
			}
		}
		if *duration == 0 {
			return
		}
	}
}

// table collects the results of all engines. It is safe for concurrent use.
type table struct {
	mu    sync.Mutex // guards lines
	lines []*line
}

type line struct {
	engine, fault string
	times         int
	least         float64 // the smallest rate of operations a second until the recovery
	leastWrites   float64 // the smallest rate of writes a second of all windows
	verdict
}

func (b *table) add(engine, fault string, v verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.lines, func(l *line) bool { return l.engine == engine && l.fault == fault })
	if i < 0 {
		i = len(b.lines)
		b.lines = append(b.lines, &line{engine: engine, fault: fault})
	}
	l := b.lines[i]
	if l.times == 0 {
		l.least, l.leastWrites = v.meanwhile.aSecond(), v.writesASecond()
	}
	l.least, l.leastWrites = min(l.least, v.meanwhile.aSecond()), min(l.leastWrites, v.writesASecond())
	l.times++
	l.verdict.add(v)
}

func (b *table) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.SortFunc(b.lines, func(x, y *line) int { return strings.Compare(x.engine+x.fault, y.engine+y.fault) })
	var text strings.Builder
	fmt.Fprintln(&text, "| engine | fault | times | operations | operations a second | operations until the recovery | operations a second until the recovery, at least | writes | writes a second, at least | new tenures | writes without a reply | violations | undecided histories |")
	fmt.Fprintln(&text, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, l := range b.lines {
		fmt.Fprintf(&text, "| %s | %s | %d | %d | %.0f | %d | %.0f | %d | %.0f | %d | %d | %d | %d |\n", l.engine, l.fault, l.times, l.operations,
			l.aSecond(), l.meanwhile.operations, l.least, l.writes, l.leastWrites, l.tenures, l.lost, len(l.violations), l.unknown)
	}
	return text.String()
}
