package main

import (
	"errors"
	"slices"
	"syscall"
	"time"
)

// bench is a run of the program.
type bench struct {
	*results
	dir    string // for the data of all servers
	st     *stage
	sites  map[string]*site
	slow   []*slowDisk
	wanted func(subject string) bool
	say    func(format string, args ...any)
}

// start starts all subjects that are wanted. They run side by side, and only one has something to
// do at a time.
func (b *bench) start() {
	for _, s := range subjects {
		if !b.wanted(s.name) {
			continue
		}
		inner := &stage{dir: b.st.dir}
		b.st.Cleanup(inner.strike)
		site, err := inner.try(s.start)
		if err != nil {
			b.failed(s.name, err)
			continue
		}
		b.sites[s.name] = site
	}
}

// failed notes what could not be measured, and the run goes on.
func (b *bench) failed(what string, err error) {
	b.say("FAILED %s: %v", what, err)
	if errors.Is(err, errMissing) {
		b.missing = append(b.missing, what)
		return
	}
	b.fault(what, err)
}

// duel is a load that several subjects run one after the other.
type duel struct {
	load
	subjects []string
}

// duels are the loads of a round, in their order. The two that sync each change are by themselves:
// each follows the other as often as the other follows it.
func duels(round int) (all []duel) {
	pair := inTurn(round, []string{always, redisAlways})
	var rest []string
	for _, s := range subjects {
		if !slices.Contains(pair, s.name) {
			rest = append(rest, s.name)
		}
	}
	rest = inTurn(round, rest)
	for _, n := range []int{1, 16, crowd, 256} {
		all = append(all, duel{load{clients: n}, pair})
	}
	for _, n := range []int{16, crowd} {
		all = append(all, duel{load{clients: n, hot: true}, pair})
	}
	return append(all, duel{load{clients: 1}, rest}, duel{load{clients: crowd}, rest}, duel{load{clients: crowd, hot: true}, rest})
}

// inTurn returns the order of a round. Every other round has the opposite one, so that no one of
// two always comes first.
func inTurn[T any](round int, all []T) []T {
	all = slices.Clone(all)
	if round%2 == 1 {
		slices.Reverse(all)
	}
	return all
}

// round runs each load once on each of its subjects.
func (b *bench) round(round int) {
	for _, d := range duels(round) {
		for _, name := range d.subjects {
			if site := b.sites[name]; site != nil {
				b.measure(round, name, site, d.load)
			}
		}
	}
}

// flushDisk writes the data of the subject before to the disk, so that it delays no later subject.
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

// inMS returns a time in milliseconds.
func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
