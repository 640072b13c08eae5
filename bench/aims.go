package main

import (
	"fmt"
	"math"
	"slices"
)

// aim is a bound on a figure of the run.
type aim struct {
	what   string
	limit  float64
	unit   string
	most   bool      // whether limit is the largest good value; false: the smallest
	values []float64 // one per measured round
	rounds int       // number of values that a complete run has
	from   string    // for a ratio, its two figures as text
}

const (
	// diskBefore is the size on disk of a held mutex, in bytes, before the server had a journal. At
	// commit 27d06e8 it was 18.8 bytes, with a million mutexes.
	diskBefore = 19
)

// aims returns all aims with their figures, also aims that were not measured.
func (r *results) aims() (all []aim) {
	// ratio adds an aim about the ratio a/b.
	ratio := func(what string, limit float64, most bool, a, b key) {
		from := figure(median(r.of(a))) + " / " + figure(median(r.of(b)))
		all = append(all, aim{what, limit, "×", most, r.ratios(a, b), r.expected(a.quantity), from})
	}
	value := func(what string, limit float64, unit string, most bool, k key) {
		all = append(all, aim{what, limit, unit, most, r.of(k), r.expected(k.quantity), ""})
	}
	const least, most = false, true

	const fsync, diskless = always + " / " + redisAlways, " / " + redisMemory
	for _, n := range []int{1, 16, 64, 256} {
		limit := 1.1
		if n == 1 {
			limit = 1
		}
		ratio(clients(n)+", a mutex each: tenures, "+fsync, limit, least, key{tenures, always, n}, key{tenures, redisAlways, n})
	}
	for _, n := range []int{16, 64} {
		ratio(clients(n)+", one mutex for all: tenures, "+fsync, 2.5, least, key{handoffs, always, n}, key{handoffs, redisAlways, n})
	}
	for _, n := range []int{16, 64} {
		value(clients(n)+", one mutex for all: fairness of "+always, 0.99, "", least, key{fairness, always, n})
	}
	ratio("64 clients, a mutex each: tenures, "+memory+diskless, 1.1, least, key{tenures, memory, 64}, key{tenures, redisMemory, 64})
	ratio("64 clients, a mutex each: µs of processor time of the server a tenure, "+always+" / "+memory, 1.7, most,
		key{serverTime, always, 64}, key{serverTime, memory, 64})
	ratio("pipelines of 16: acquires, "+always+diskless, 1.5, least, key{pipelined, always, depth}, key{pipelined, redisMemory, depth})
	ratio("pipelines of 16: acquires, "+memory+diskless, 3, least, key{pipelined, memory, depth}, key{pipelined, redisMemory, depth})
	value(handoffLoad+": p99 of "+onPostgres, 20, "ms", most, key{handoffP99, onPostgres, 2})
	for _, sync := range slowSyncs {
		value("a sync of "+milliseconds(sync)+": p99 of PING", 2, "ms", most, key{pingP99, slowName(sync), probed})
		value("a sync of "+milliseconds(sync)+": p99 of SIMBA.CHECK", 2, "ms", most, key{checkP99, slowName(sync), probed})
	}
	const apiece, shared = "three servers, 64 clients, a mutex each: tenures, ", "three servers, 16 clients, one mutex for all: tenures, "
	for _, peer := range []struct {
		name  string
		times float64
	}{{etcdThree, 3}, {zooKeeperThree, 2}} {
		pair := simbaThree + " / " + peer.name
		ratio(apiece+pair, peer.times, least, key{tenures, simbaThree, manyClients}, key{tenures, peer.name, manyClients})
		ratio(shared+pair, 3, least, key{handoffs, simbaThree, threeClients}, key{handoffs, peer.name, threeClients})
		ratio("three servers, one lock: p50 in ms, "+pair, 1.05, most, key{tenureP50, simbaThree, 1}, key{tenureP50, peer.name, 1})
	}
	value("three servers, 16 clients, one mutex for all: fairness of "+simbaThree, 0.99, "", least, key{fairness, simbaThree, threeClients})
	const killed = "three servers, kill -9 of the leader: time to the next grant, "
	value(killed+"median", 1.8, "s", most, key{takeover, simbaThree, heldLeases})
	value(killed+"p99", 3, "s", most, key{takeoverP99, simbaThree, heldLeases})
	value("three servers, the leader hands over: longest time without a grant", 300, "ms", most, key{handoverLongest, simbaThree, heldLeases})
	held := figure(float64(*many)) + " held mutexes: "
	ratio(held+"p99.9 of a commit in ms, while a checkpoint runs / between", 3, most,
		key{commitDuring, always, renewing}, key{commitBetween, always, renewing})
	value(held+"restart after kill -9", 1, "s", most, key{restart, always, *many})
	value(held+"restart with a full journal", 2, "s", most, key{restartFull, always, *many})
	value(held+"the files of a full journal", 64, "MiB", most, key{journalMiB, always, *many})
	value(held+"bytes on disk each, without the journal", diskBefore, "", most, key{diskBytes, always, *many})
	value(held+"bytes of memory each", 256, "", most, key{residentBytes, always, *many})
	return all
}

func (a aim) bound() string {
	side := "at least"
	if a.most {
		side = "at most"
	}
	limit := fmt.Sprintf("%g", a.limit)
	if a.limit >= 1000 {
		limit = figure(a.limit)
	}
	return fmt.Sprintf("%s %s", side, withUnit(limit, a.unit))
}

func (a aim) measured() string { return withUnit(figureBeside(median(a.values), a.limit), a.unit) }

// spread returns the smallest and the largest value. If values are missing, it also returns how
// many there are.
func (a aim) spread() (text string) {
	if len(a.values) > 1 {
		text = figure(slices.Min(a.values)) + " to " + figure(slices.Max(a.values))
	}
	if len(a.values) > 0 && len(a.values) < a.rounds {
		text += fmt.Sprintf(" (%d of %d)", len(a.values), a.rounds)
	}
	return text
}

func (a aim) verdict() string {
	switch m := median(a.values); {
	case math.IsNaN(m):
		return "not measured"
	case a.most && m <= a.limit, !a.most && m >= a.limit:
		return "met"
	}
	return "**missed**"
}
