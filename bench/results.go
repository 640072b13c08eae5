package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

type quantity string

const (
	tenures       quantity = "tenures/s, a mutex each"
	tenureP50     quantity = "a tenure, p50 in ms, a mutex each"
	tenureP99     quantity = "a tenure, p99 in ms, a mutex each"
	handoffs      quantity = "tenures/s, one mutex for all"
	handoffP50    quantity = "a handoff between two servers, p50 in ms"
	handoffP99    quantity = "a handoff between two servers, p99 in ms"
	fairness      quantity = "Jain's index of the tenures, one mutex for all"
	serverTime    quantity = "processor time of simba-resp, µs a tenure"
	storeTime     quantity = "processor time of the store, µs a tenure"
	clientTime    quantity = "processor time of the clients, µs a tenure"
	pipelined     quantity = "acquires/s in pipelines"
	pingP99       quantity = "PING, p99 in ms"
	checkP99      quantity = "SIMBA.CHECK, p99 in ms"
	commitDuring  quantity = "a commit while a checkpoint runs, p99.9 in ms"
	commitBetween quantity = "a commit while no checkpoint runs, p99.9 in ms"
	residentBytes quantity = "resident bytes a held mutex"
	diskBytes     quantity = "bytes on disk a held mutex"
	journalMiB    quantity = "MiB of the full journal"
	restart       quantity = "restart, s"
	restartFull   quantity = "restart with a full journal, s"

	takeover        quantity = "from kill -9 of the leader to the next grant, s"
	takeoverP99     quantity = "from kill -9 of the leader to the next grant, p99 in s"
	handover        quantity = "time without a grant while the leader hands over, ms"
	handoverLongest quantity = "time without a grant while the leader hands over, the longest, ms"
)

// key names one figure: a quantity of a subject, with the size of the load.
type key struct {
	quantity quantity
	subject  string
	size     int // clients, commands in a pipeline, or mutexes
}

// results are the values of a run, by figure and round.
type results struct {
	rounds  int
	values  map[key]map[int]float64
	missing []string // subjects that are not installed
	faults  []fault
}

type fault struct {
	text  string
	times int
}

func newResults(rounds int) *results {
	return &results{rounds: rounds, values: make(map[key]map[int]float64)}
}

func (r *results) add(round int, k key, value float64) {
	if r.values[k] == nil {
		r.values[k] = make(map[int]float64)
	}
	r.values[k][round] = value
}

// expected returns how many values of a quantity a complete run has.
func (r *results) expected(q quantity) int {
	switch q {
	case residentBytes, diskBytes, journalMiB, takeoverP99, handoverLongest:
		return 1
	case commitDuring, commitBetween:
		return min(r.rounds, mostCheckpoints)
	case takeover:
		return *kills
	case handover:
		return handovers()
	}
	return r.rounds
}

// fault records a failure. The same failure in another round increments its count.
func (r *results) fault(what string, err error) {
	// An error may have several lines, such as the log of a store. Join them.
	text := strings.Join(strings.Fields(fmt.Sprintf("%s: %v", what, err)), " ")
	for i := range r.faults {
		if r.faults[i].text == text {
			r.faults[i].times++
			return
		}
	}
	r.faults = append(r.faults, fault{text, 1})
}

func (f fault) String() string {
	if f.times == 1 {
		return f.text
	}
	return fmt.Sprintf("%s (%d times)", f.text, f.times)
}

func (r *results) of(k key) []float64 { return slices.Collect(maps.Values(r.values[k])) }

// median returns the median of all rounds, or NaN without a value.
func (r *results) median(quantity quantity, subject string, size int) float64 {
	return median(r.of(key{quantity, subject, size}))
}

// ratios returns a/b for each round that has both values. They were measured within seconds, so a
// slow phase of the machine affects both.
func (r *results) ratios(a, b key) (all []float64) {
	for round, value := range r.values[a] {
		if other, ok := r.values[b][round]; ok && other > 0 {
			all = append(all, value/other)
		}
	}
	return all
}

func median(values []float64) float64 {
	all := slices.Sorted(slices.Values(values))
	switch n := len(all); {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return all[n/2]
	default:
		return (all[n/2-1] + all[n/2]) / 2
	}
}
