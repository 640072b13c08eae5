package chaos

import (
	"math/rand/v2"
	"time"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// fault is something that goes wrong for a while, and is healed.
type fault struct {
	name     string
	ofStore  bool // there must be a store
	ofPair   bool // the store must be a primary and its replica
	ofServer bool // the server's process ends
	// spares reports whether somebody can be asked all the time: a server that works, and a way to it; nil = nobody.
	spares func(w *world) bool
	// inflict does it, lets it last for about as long as it is asked to, and heals it. It
	// returns which servers it may have parted from the store.
	inflict func(w *world, victim int, length time.Duration, rng *rand.Rand) (parted []int)
}

// faults are all of them. Times are those of the short form; in the long form they last up to three times as
// long, which is longer than the session timeout of engine zookeeper.
var faults = []fault{
	{name: "server killed", ofServer: true, spares: others, inflict: func(w *world, victim int, length time.Duration, _ *rand.Rand) []int {
		s := w.servers[victim]
		s.Kill()
		w.killed = now()
		time.Sleep(length / 4)
		s.Start()
		return []int{victim}
	}},
	{name: "server stopped, shorter than leases", spares: others, inflict: func(w *world, victim int, length time.Duration, rng *rand.Rand) []int {
		for range 5 {
			stopped(w.servers[victim], time.Duration(rng.Int64N(int64(100*time.Millisecond))))
			time.Sleep(length / 5) // it runs
		}
		return nil
	}},
	{name: "server stopped, longer than leases", spares: others, inflict: func(w *world, victim int, length time.Duration, _ *rand.Rand) []int {
		stopped(w.servers[victim], length)
		return []int{victim}
	}},
	{name: "clients cut", spares: everyone, inflict: func(w *world, _ int, length time.Duration, _ *rand.Rand) []int {
		for range 3 {
			for _, d := range w.doors {
				d.Reset()
			}
			time.Sleep(length / 3) // they come back
		}
		return nil
	}},
	{name: "clients blackholed", spares: everyone, inflict: func(w *world, victim int, length time.Duration, rng *rand.Rand) []int {
		blackholed(w.doors[rng.IntN(len(w.doors))].Link, length)
		return nil
	}},
	{name: "clients delayed", spares: everyone, inflict: func(w *world, victim int, length time.Duration, rng *rand.Rand) []int {
		delayed(w.doors[rng.IntN(len(w.doors))].Link, length, rng)
		return nil
	}},
	{name: "store killed", ofStore: true, inflict: func(w *world, _ int, length time.Duration, _ *rand.Rand) []int {
		store := w.store()
		store.Kill()
		time.Sleep(length / 4)
		store.Start()
		return w.all()
	}},
	{name: "store stopped", ofStore: true, inflict: func(w *world, _ int, length time.Duration, _ *rand.Rand) []int {
		stopped(w.store(), length)
		return w.all()
	}},
	{name: "store cut", ofStore: true, inflict: func(w *world, _ int, length time.Duration, _ *rand.Rand) []int {
		for range 3 {
			for _, l := range w.links {
				l.Reset()
			}
			time.Sleep(length / 3) // servers come back
		}
		return w.all()
	}},
	{name: "store blackholed", ofStore: true, spares: others, inflict: func(w *world, victim int, length time.Duration, _ *rand.Rand) []int {
		blackholed(w.links[victim], length)
		return []int{victim}
	}},
	{name: "store delayed", ofStore: true, spares: others, inflict: func(w *world, victim int, length time.Duration, rng *rand.Rand) []int {
		delayed(w.links[victim], length, rng)
		return []int{victim}
	}},
	{name: "primary demoted, old connections kept", ofPair: true, inflict: func(w *world, _ int, length time.Duration, _ *rand.Rand) []int {
		w.pair.Failover()
		time.Sleep(length)
		w.pair.Rejoin()
		return w.all()
	}},
}

// others is of a fault that strikes one server, and spares the rest if there are more.
func others(w *world) bool { return len(w.servers) > 1 }

// everyone is of a fault that strikes clients: who comes back, or comes by the other door, is served.
func everyone(*world) bool { return true }

// stopped freezes a process, a server's or a store's.
func stopped(p interface {
	Pause()
	Resume()
}, length time.Duration) {
	p.Pause()
	defer p.Resume()
	time.Sleep(length)
}

func blackholed(l *stores.Link, length time.Duration) {
	l.Blackhole()
	defer l.Heal()
	time.Sleep(length)
}

func delayed(l *stores.Link, length time.Duration, rng *rand.Rand) {
	defer l.Heal()
	for range 5 {
		l.Delay(time.Duration(rng.Int64N(int64(60 * time.Millisecond))))
		time.Sleep(length / 5)
	}
}

func (w *world) all() (servers []int) {
	for i := range w.servers {
		servers = append(servers, i)
	}
	return servers
}
