package main

import (
	"fmt"
	"math"
	"slices"
)

// aim is what the project wants to be, as a bound on figures of one run.
type aim struct {
	what   string
	limit  float64
	unit   string
	most   bool      // the limit is an upper one
	values []float64 // of each round
	from   string    // the figures that a ratio is made of
}

// diskBefore is how many bytes a held mutex took on disk before there was a journal: 18.8 at commit
// 27d06e8, by the same million mutexes, after a restart and a stop.
const diskBefore = 19

// aims judges a run. Every aim is there, whatever was measured.
func (r *results) aims() (all []aim) {
	// ratio adds an aim about a/b.
	ratio := func(what string, limit float64, most bool, a, b key) {
		from := figure(median(r.of(a))) + " / " + figure(median(r.of(b)))
		all = append(all, aim{what, limit, "×", most, r.ratios(a, b), from})
	}
	value := func(what string, limit float64, unit string, most bool, k key) {
		all = append(all, aim{what, limit, unit, most, r.of(k), ""})
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
	ratio("64 clients, a mutex each: processor time of the server in µs a tenure, "+always+" / "+memory, 1.7, most,
		key{serverTime, always, 64}, key{serverTime, memory, 64})
	ratio("pipelines of 16: acquires, "+always+diskless, 1.5, least, key{pipelined, always, depth}, key{pipelined, redisMemory, depth})
	ratio("pipelines of 16: acquires, "+memory+diskless, 3, least, key{pipelined, memory, depth}, key{pipelined, redisMemory, depth})
	for _, sync := range slowSyncs {
		value("a sync of "+inMS(sync)+": p99 of PING", 2, "ms", most, key{pingP99, slowName(sync), probed})
		value("a sync of "+inMS(sync)+": p99 of SIMBA.CHECK", 2, "ms", most, key{checkP99, slowName(sync), probed})
	}
	held := figure(float64(*many)) + " held mutexes: "
	value(held+"restart after kill -9", 1, "s", most, key{restart, always, *many})
	value(held+"restart with a full journal", 2, "s", most, key{restartFull, always, *many})
	value(held+"bytes on disk each, without the journal", diskBefore, "", most, key{diskBytes, always, *many})
	value(held+"bytes of memory each", 256, "", most, key{residentBytes, always, *many})
	return all
}

func clients(n int) string {
	if n == 1 {
		return "1 client"
	}
	return fmt.Sprintf("%d clients", n)
}

// bound is the limit as people read it.
func (a aim) bound() string {
	side := "at least"
	if a.most {
		side = "at most"
	}
	return fmt.Sprintf("%s %s", side, withUnit(fmt.Sprintf("%g", a.limit), a.unit))
}

// measured is the median of the rounds.
func (a aim) measured() string { return withUnit(figure(median(a.values)), a.unit) }

// rounds is the smallest and the largest value.
func (a aim) rounds() string {
	if len(a.values) < 2 {
		return ""
	}
	return figure(slices.Min(a.values)) + " to " + figure(slices.Max(a.values))
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

func withUnit(number, unit string) string {
	if unit == "" || number == unmeasured {
		return number
	}
	return number + " " + unit
}

// unmeasured stands for a figure that is missing.
const unmeasured = "–"

// figure shows three digits, or all of a whole number of more.
func figure(v float64) string {
	switch {
	case math.IsNaN(v):
		return unmeasured
	case v >= 1000:
		text := fmt.Sprintf("%.0f", v)
		for i := len(text) - 3; i > 0; i -= 3 {
			text = text[:i] + "," + text[i:]
		}
		return text
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
