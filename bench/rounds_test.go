package main

import (
	"slices"
	"testing"
)

func TestEachLoadHasTheOppositeOrderInTheNextRound(t *testing.T) {
	for round := range 4 {
		next := duels(round + 1)
		for i, d := range duels(round) {
			slices.Reverse(d.subjects)
			if !slices.Equal(d.subjects, next[i].subjects) {
				t.Errorf("load %d: round %d has %v, backwards; the next one has %v", i, round, d.subjects, next[i].subjects)
			}
		}
	}
}
