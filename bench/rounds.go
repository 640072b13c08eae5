package main

import (
	"errors"
	"slices"
	"strconv"
	"time"
)

// bench is a run of the program.
type bench struct {
	*results
	st     *stage
	sites  map[string]*site
	slow   []*slowDisk
	during time.Duration // of one load
	say    func(format string, args ...any)
}

// start starts all subjects whose name is wanted. They run side by side, and only one has
// something to do at a time.
func (b *bench) start(wanted func(name string) bool) {
	for _, s := range subjects {
		if !wanted(s.name) {
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
	if b.say("FAILED %s: %v", what, err); errors.Is(err, errMissing) {
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

// duels are the loads of a round, in their order.
func duels(round int) []duel {
	var all []string
	for _, s := range subjects {
		all = append(all, s.name)
	}
	durable := []string{always, redisAlways}
	return []duel{
		{load{clients: 1}, inTurn(round, durable)},
		{load{clients: 16}, inTurn(round, durable)},
		{load{clients: crowd}, inTurn(round, all)},
		{load{clients: 256}, inTurn(round, durable)},
		{load{clients: 16, hot: true}, inTurn(round, durable)},
		{load{clients: crowd, hot: true}, inTurn(round, all)},
	}
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

func (b *bench) measure(round int, name string, site *site, l load) {
	what := "a mutex each"
	if l.hot {
		what = "one mutex for all"
	}
	f, err := site.run(l, b.during)
	if err == nil && f.intrusion > 0 {
		b.intruded += f.intrusion
		err = errors.New(strconv.FormatInt(f.intrusion, 10) + " times two clients owned a mutex")
	}
	if err != nil {
		b.failed(name+", "+what+", "+strconv.Itoa(l.clients)+" clients", err)
		return
	}
	server, store, clients := f.perTenure(f.spent.server), f.perTenure(f.spent.store), f.perTenure(f.spent.clients)
	b.say("%-24s %-18s %4d clients %8.0f/s, µs a tenure: simba-resp %5.1f, store %6.1f, clients %5.1f",
		name, what, l.clients, f.rate, server, store, clients)
	if l.hot {
		b.add(round, key{handoffs, name, l.clients}, f.rate)
		b.add(round, key{fairness, name, l.clients}, f.fairness)
		return
	}
	b.add(round, key{tenures, name, l.clients}, f.rate)
	b.add(round, key{serverTime, name, l.clients}, server)
	b.add(round, key{storeTime, name, l.clients}, store)
	b.add(round, key{clientTime, name, l.clients}, clients)
}
