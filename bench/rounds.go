package main

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"syscall"
	"time"
)

type bench struct {
	*results
	dir    string // for the data of all servers
	tb     *testbed
	sites  map[string]*site
	slow   []*slowDisk
	wanted func(subject string) bool
	say    func(format string, args ...any)
}

// start starts subjects. Only one of them has a load at a time.
func (b *bench) start(subjects []subject) {
	for _, s := range subjects {
		if !b.wanted(s.name) {
			continue
		}
		inner := &testbed{dir: b.tb.dir}
		b.tb.Cleanup(inner.cleanUp)
		at, err := inner.try(s.start)
		if err == nil && *other != "" && at.processes.server != 0 {
			inner.program = *other
			b.sites[s.name+otherBuild], err = inner.try(func(tb *testbed) (*site, error) {
				if at.processes.store == 0 {
					return s.start(tb)
				}
				return simba(tb, at.processes.store, at.flags...), nil
			})
		}
		if err != nil {
			b.failed(s.name, err)
			continue
		}
		b.sites[s.name] = at
	}
}

// otherBuild ends the name of a subject that runs the program of -other, on the same store.
const otherBuild = ", other build"

// compareBuilds prints the ratio of each figure to that of the other build.
func (b *bench) compareBuilds() {
	var lines []string
	for k := range b.values {
		if r := b.ratios(k, key{k.quantity, k.subject + otherBuild, k.size}); len(r) > 0 {
			lines = append(lines, fmt.Sprintf("%s, %s, %s: this build / other build %.3f, rounds %.3f to %.3f",
				k.subject, clients(k.size), k.quantity, median(r), slices.Min(r), slices.Max(r)))
		}
	}
	slices.Sort(lines)
	for _, line := range lines {
		b.say("%s", line)
	}
}

func (b *bench) failed(what string, err error) {
	b.say("FAILED %s: %v", what, err)
	if errors.Is(err, errMissing) {
		b.missing = append(b.missing, what)
		return
	}
	b.fault(what, err)
}

// comparison is a load and the subjects on which it runs, one after the other.
type comparison struct {
	load
	subjects []string
}

// comparisons returns the comparisons of a round in their order. The two subjects that sync each
// change are compared only with each other.
func comparisons(round int) (all []comparison) {
	pair := orderOf(round, []string{always, redisAlways})
	rest := slices.DeleteFunc(orderOf(round, subjectNames()), func(name string) bool { return slices.Contains(pair, name) })
	for _, n := range []int{1, 16, manyClients, 256} {
		all = append(all, comparison{load{clients: n}, pair})
	}
	for _, n := range []int{16, manyClients} {
		all = append(all, comparison{load{clients: n, hot: true}, pair})
	}
	return append(all, comparison{load{clients: 1}, rest}, comparison{load{clients: manyClients}, rest}, comparison{load{clients: manyClients, hot: true}, rest})
}

// orderOf reverses the order in every other round, so that no subject always runs before another.
func orderOf[T any](round int, all []T) []T {
	all = slices.Clone(all)
	if round%2 == 1 {
		slices.Reverse(all)
	}
	return all
}

func (b *bench) compare(round int, all []comparison) {
	for _, d := range all {
		if !strings.Contains(d.String(), *loads) {
			continue
		}
		for name, site := range b.turns(round, d.subjects) {
			b.measure(round, name, site, d.load)
		}
	}
}

func (b *bench) round(round int) {
	b.compare(round, comparisons(round))
	if strings.Contains(handoffLoad, *loads) {
		b.handoffs(round)
	}
}

// turns yields the sites of subjects, and beside each that of its other build.
func (b *bench) turns(round int, subjects []string) iter.Seq2[string, *site] {
	return func(yield func(string, *site) bool) {
		for _, subject := range subjects {
			for _, name := range orderOf(round, []string{subject, subject + otherBuild}) {
				if at := b.sites[name]; at != nil && !yield(name, at) {
					return
				}
			}
		}
	}
}

// flushDisk writes the data of the previous subject to the disk, so that this does not delay the
// next subject.
func flushDisk() {
	syscall.Sync()
	time.Sleep(200 * time.Millisecond)
}

func (b *bench) measure(round int, name string, site *site, l load) {
	flushDisk()
	f, err := site.run(l, *during)
	if err != nil {
		b.failed(name+", "+l.String(), err)
		return
	}
	server, store, clients := f.perTenure(f.spent.server), f.perTenure(f.spent.store), f.perTenure(f.spent.clients)
	p50, p99 := inMS(f.took.Quantile(0.5)), inMS(f.took.Quantile(0.99))
	b.say("%-24s %-30s %8.0f/s, p50 %7.2f ms, p99 %7.2f ms, µs a tenure: simba-resp %5.1f, store %6.1f, clients %5.1f",
		name, l, f.rate, p50, p99, server, store, clients)
	if l.hot {
		b.add(round, key{handoffs, name, l.clients}, f.rate)
		b.add(round, key{fairness, name, l.clients}, f.fairness)
		return
	}
	b.add(round, key{tenures, name, l.clients}, f.rate)
	b.add(round, key{tenureP50, name, l.clients}, p50)
	b.add(round, key{tenureP99, name, l.clients}, p99)
	b.add(round, key{serverTime, name, l.clients}, server)
	b.add(round, key{storeTime, name, l.clients}, store)
	b.add(round, key{clientTime, name, l.clients}, clients)
}

func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
