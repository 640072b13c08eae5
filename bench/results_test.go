package main

import (
	"math"
	"slices"
	"testing"
)

func TestARatioComparesTwoValuesOfTheSameRound(t *testing.T) {
	r := newResults(4)
	a, b := key{tenures, always, 64}, key{tenures, redisAlways, 64}
	// The machine becomes slower from round to round.
	for round, values := range [][2]float64{{100, 50}, {10, 20}, {9, 3}} {
		r.add(round, a, values[0])
		r.add(round, b, values[1])
	}
	r.add(3, a, 1000) // b failed in this round
	got := slices.Sorted(slices.Values(r.ratios(a, b)))
	if want := []float64{0.5, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("the ratios are %v, want %v", got, want)
	}
	if m := median(r.ratios(a, b)); m != 2 {
		t.Errorf("the median of the ratios is %v, want 2", m)
	}
	if m := median(r.ratios(a, key{tenures, memory, 64})); !math.IsNaN(m) {
		t.Errorf("the median ratio to a quantity without values is %v, want NaN", m)
	}
}
