package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// quantity is what is measured.
type quantity string

// The quantities of the page.
const (
	tenures       quantity = "tenures/s, a mutex each"
	handoffs      quantity = "tenures/s, one mutex for all"
	fairness      quantity = "Jain's index of the tenures, one mutex for all"
	serverTime    quantity = "processor time of simba-resp, µs a tenure"
	storeTime     quantity = "processor time of the store, µs a tenure"
	clientTime    quantity = "processor time of the clients, µs a tenure"
	pipelined     quantity = "acquires/s in pipelines"
	pingP99       quantity = "PING, p99 in ms"
	checkP99      quantity = "SIMBA.CHECK, p99 in ms"
	residentBytes quantity = "resident bytes a held mutex"
	diskBytes     quantity = "bytes on disk a held mutex"
	restart       quantity = "restart, s"
	restartFull   quantity = "restart with a full journal, s"
)

// key is one cell of the results.
type key struct {
	quantity quantity
	subject  string
	size     int // clients, commands in a pipeline, or mutexes
}

// results are the values of a run, by the round that measured them.
type results struct {
	values   map[key]map[int]float64
	intruded int64    // how often two clients owned one mutex
	missing  []string // what is not installed
	errs     []string // what failed
}

func newResults() *results { return &results{values: make(map[key]map[int]float64)} }

// add notes the value of a round.
func (r *results) add(round int, k key, value float64) {
	if r.values[k] == nil {
		r.values[k] = make(map[int]float64)
	}
	r.values[k][round] = value
}

// fault notes what failed.
func (r *results) fault(what string, err error) {
	r.errs = append(r.errs, fmt.Sprintf("%s: %v", what, err))
}

// of returns the values of all rounds.
func (r *results) of(k key) []float64 { return slices.Collect(maps.Values(r.values[k])) }

// ratios returns a/b of each round that measured both. Two values of one round are seconds apart,
// so what slows the machine down for longer slows both down.
func (r *results) ratios(a, b key) (all []float64) {
	for round, value := range r.values[a] {
		if other, ok := r.values[b][round]; ok && other > 0 {
			all = append(all, value/other)
		}
	}
	return all
}

// median returns NaN if there are no values.
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
