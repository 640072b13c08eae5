package main

import (
	"fmt"
	"math"
)

// aim is what the project wants to be, as a bound on figures of one run.
type aim struct {
	what  string
	bound string // as people read it
	value float64
	met   bool
}

// atLeast and atMost make aims. What was not measured is not met.
func atLeast(what string, bound, value float64, unit string) aim {
	return aim{what, fmt.Sprintf("at least %g%s", bound, unit), value, value >= bound}
}

func atMost(what string, bound, value float64, unit string) aim {
	return aim{what, fmt.Sprintf("at most %g%s", bound, unit), value, value <= bound}
}

// aims judges a run.
func (r *results) aims() (all []aim) {
	ratio := func(name, row, other, column string) float64 {
		return r.median(name, row, column) / r.median(name, other, column)
	}
	for _, s := range []string{memory, async} {
		all = append(all, atLeast("uncontended, 64 clients: "+s+" / Redis without a disk", 1.1, ratio(uncontended, s, redisMemory, "64"), " ×"))
	}
	all = append(all, atLeast("uncontended, 64 clients: "+always+" / Redis appendfsync always", 1.5, ratio(uncontended, always, redisAlways, "64"), " ×"))
	for _, n := range []string{"16", "64"} {
		all = append(all,
			atLeast("hot mutex, "+n+": "+memory+" / ping-pong of the same server", 0.95, r.median(handoffs, memory, n)/r.median(bounces, memory, "2"), " ×"),
			atLeast("hot mutex, "+n+": "+always+" / Redis appendfsync always", 2.5, ratio(handoffs, always, redisAlways, n), " ×"),
			atLeast("hot mutex, "+n+": fairness of "+memory, 0.99, r.median(fairness, memory, n), ""),
			atLeast("hot mutex, "+n+": fairness of "+always, 0.99, r.median(fairness, always, n), ""),
			atMost("hot mutex, "+n+": longest wait over the mean, "+memory, 2, r.median(longestWait, memory, n), " ×"),
			atMost("hot mutex, "+n+": longest wait over the mean, "+always, 2, r.median(longestWait, always, n), " ×"))
	}
	acquire := func(durability string) float64 {
		return r.median(pipelined, durability+" SIMBA.ACQUIRE", "16") / r.median(pipelined, redisMemory+" acquire script", "16")
	}
	all = append(all,
		atLeast("pipelines of 16: SIMBA.ACQUIRE of "+memory+" / the seed's script on Redis without a disk", 3, acquire(memory), " ×"),
		atLeast("pipelines of 16: SIMBA.ACQUIRE of "+always+" / the same", 2, acquire(always), " ×"),
		atLeast("pipelines of 16: PING / Redis", 0.8, ratio(pipelined, memory+" PING", redisMemory+" PING", "16"), " ×"),
		atMost("a million held mutexes: each, "+memory, 256, r.median(heldBytes, memory, "1,000,000"), " bytes"),
		atMost("a million held mutexes: each, "+always, 256, r.median(heldBytes, always, "1,000,000"), " bytes"),
		atMost("a million held mutexes: restart of "+always, 2, r.median(restart, always, "1,000,000"), " s"),
		atMost("a million held mutexes: restart of "+always+" / Redis from its AOF", 1, ratio(restart, always, redisAlways, "1,000,000"), " ×"),
		atMost("10,000 blocked clients: each, "+memory, 12<<10, r.median(blockedSize, memory, "10000"), " bytes"),
		atMost("10,000 blocked clients: grant of the first, p99, "+memory, 1, r.median(blockedWake, memory, "10000"), " ms"))
	for n, bound := range map[string]float64{"64": 0.9, "256": 1.2} {
		all = append(all, atLeast("through the Redis engine, "+n+" clients / direct", bound, ratio(uncontended, onRedis, redisMemory, n), " ×"))
	}
	all = append(all,
		atMost("a step's cost with 1,000,000 mutexes / with none", 1.3, r.median(crowded, memory, "none")/r.median(crowded, memory, "1,000,000"), " ×"),
		atMost("a handoff's cost with 4096 waiters / with 16", 1.3, r.median(handoffs, memory, "16")/r.median(handoffs, memory, "4096"), " ×"))
	return all
}

// verdict is the last column of the table of aims.
func (a aim) verdict() string {
	switch {
	case math.IsNaN(a.value):
		return "not measured"
	case a.met:
		return "met"
	}
	return "**missed**"
}
