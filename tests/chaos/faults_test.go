package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

type fault struct {
	name     string
	ofStore  bool // needs an engine with a store
	ofPair   bool // needs a store of a primary and a replica
	ofServer bool // the server's process ends
	ofRedis  bool // needs the engine redis
	ofLeader bool // needs the engine cluster
	asRoot   bool // needs the rights of root
	// spares reports whether at least one server and one route to it work during the whole fault.
	// nil means that none does.
	spares func(w *world) bool
	// inject causes the fault, waits for about the given length, and heals the fault. It returns
	// the servers that the fault may have cut off from the store.
	inject func(w *world, victim int, length time.Duration, rng *rand.Rand) (parted []int)
}

// possible reports whether f can happen in w.
func (f fault) possible(w *world) bool {
	switch {
	case f.ofStore && w.store() == nil, f.ofPair && w.pair == nil, f.ofRedis && w.engine != "redis", f.ofLeader && w.cluster == nil:
		return false
	}
	return !f.asRoot || os.Geteuid() == 0
}

// faults has the faults of all engines. In the long form they last up to three times as long as in the short form.
// They can then exceed the session timeout of the engine zookeeper.
var faults = []fault{
	{name: "server killed", ofServer: true, spares: others, inject: func(w *world, victim int, length time.Duration, _ *rand.Rand) []int {
		s := w.servers[victim]
		s.Kill()
		w.killed = now()
		time.Sleep(length / 4)
		s.Start()
		return []int{victim}
	}},
	{name: "server stopped, shorter than leases", spares: others, inject: func(w *world, victim int, length time.Duration, rng *rand.Rand) []int {
		for range 5 {
			stopped(w.servers[victim], time.Duration(rng.Int64N(int64(100*time.Millisecond))))
			time.Sleep(length / 5) // the server runs in between
		}
		return nil
	}},
	{name: "server stopped, longer than leases", spares: others, inject: func(w *world, victim int, length time.Duration, _ *rand.Rand) []int {
		stopped(w.servers[victim], length)
		return []int{victim}
	}},
	{name: "clients cut", spares: everyone, inject: func(w *world, _ int, length time.Duration, _ *rand.Rand) []int {
		for range 3 {
			for _, d := range w.routes {
				d.Reset()
			}
			time.Sleep(length / 3) // clients reconnect
		}
		return nil
	}},
	{name: "clients blackholed", spares: everyone, inject: func(w *world, victim int, length time.Duration, rng *rand.Rand) []int {
		blackholed(w.routes[rng.IntN(len(w.routes))].Link, length)
		return nil
	}},
	{name: "clients delayed", spares: everyone, inject: func(w *world, victim int, length time.Duration, rng *rand.Rand) []int {
		delayed(w.routes[rng.IntN(len(w.routes))].Link, length, rng)
		return nil
	}},
	{name: "store killed", ofStore: true, inject: func(w *world, _ int, length time.Duration, _ *rand.Rand) []int {
		store := w.store()
		store.Kill()
		time.Sleep(length / 4)
		store.Start()
		return w.all()
	}},
	{name: "store stopped", ofStore: true, inject: func(w *world, _ int, length time.Duration, _ *rand.Rand) []int {
		stopped(w.store(), length)
		return w.all()
	}},
	{name: "store cut", ofStore: true, inject: func(w *world, _ int, length time.Duration, _ *rand.Rand) []int {
		for range 3 {
			for _, l := range w.links {
				l.Reset()
			}
			time.Sleep(length / 3) // servers reconnect
		}
		return w.all()
	}},
	{name: "store blackholed", ofStore: true, spares: others, inject: func(w *world, victim int, length time.Duration, _ *rand.Rand) []int {
		blackholed(w.links[victim], length)
		return []int{victim}
	}},
	{name: "store delayed", ofStore: true, spares: others, inject: func(w *world, victim int, length time.Duration, rng *rand.Rand) []int {
		delayed(w.links[victim], length, rng)
		return []int{victim}
	}},
	{name: "primary demoted, old connections kept", ofPair: true, inject: func(w *world, _ int, length time.Duration, _ *rand.Rand) []int {
		w.pair.Failover()
		time.Sleep(length)
		w.pair.Rejoin()
		return w.all()
	}},
	{name: "store misconfigured", ofRedis: true, inject: func(w *world, _ int, length time.Duration, _ *rand.Rand) []int {
		w.misconfigured(length)
		return nil
	}},
}

// others is the function spares of a fault that hits one server.
// The election of another leader in a cluster takes as long as the fault.
func others(w *world) bool { return len(w.servers) > 1 && w.cluster == nil }

// everyone is the function spares of a fault that hits clients, which can reconnect.
func everyone(*world) bool { return true }

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

// noticesRepair is how long a server may take to notice that an operator has repaired Redis. It
// checks a refused Redis once a second.
const noticesRepair = 3 * time.Second

// misconfigured lets Redis evict keys, although its memory is not full. When each server has
// noticed that, it must begin no tenure until Redis is repaired. The fault lasts until each server
// has noticed the repair. Until then the servers refuse writes, and a contender that has lost some
// writes only reads, see mayLose.
func (w *world) misconfigured(length time.Duration) {
	w.t.Helper()
	ask := func(addr string, words ...any) error {
		c, err := redis.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = redis.DoWithTimeout(c, patience, words[0].(string), words[1:]...)
		return err
	}
	must := func(words ...any) {
		w.t.Helper()
		if err := ask(w.store().Addr, words...); err != nil {
			w.t.Fatalf("%v: %v", words, err)
		}
	}
	begin := func(s host) error {
		return ask(s.addr, "SIMBA.ACQUIRE", fmt.Sprintf("probe-%d", now()), "probe", 1000)
	}
	must("CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-random")
	must("CLIENT", "KILL", "TYPE", "pubsub") // so that the servers check Redis soon
	noticed := make([]bool, len(w.servers))
	for late, end := after(now(), patience), instant(0); end == 0 || now() < end; time.Sleep(10 * time.Millisecond) {
		for i, s := range w.servers {
			err := begin(s)
			switch {
			case err != nil && strings.Contains(err.Error(), "misconfigured: "):
				noticed[i] = true
			case noticed[i] && err == nil:
				w.t.Errorf("server %d began a tenure after it had noticed that Redis evicts keys", i)
			}
		}
		if end == 0 && !slices.Contains(noticed, false) {
			end = after(now(), length)
		}
		if now() > late {
			w.t.Errorf("not all servers noticed within %v that Redis evicts keys: %v", patience, noticed)
			break
		}
	}
	must("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "0")
	repaired := now()
	for i, s := range w.servers {
		for err := begin(s); err != nil; err = begin(s) {
			if now() > after(repaired, need.AtMost(noticesRepair)) {
				w.t.Errorf("server %d has begun no tenure within %v after the repair of Redis: %v", i, need.AtMost(noticesRepair), err)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	w.t.Logf("all servers began tenures again %v after the repair of Redis", time.Duration(now()-repaired))
}

func (w *world) all() (servers []int) {
	for i := range w.servers {
		servers = append(servers, i)
	}
	return servers
}
