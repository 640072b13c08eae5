package main

import (
	"slices"
	"testing"
)

func TestEachLoadHasTheOppositeOrderInTheNextRound(t *testing.T) {
	for round := range 4 {
		next := comparisons(round + 1)
		for i, d := range comparisons(round) {
			d.subjects = slices.Clone(d.subjects) // since comparisons share the slice
			slices.Reverse(d.subjects)
			if !slices.Equal(d.subjects, next[i].subjects) {
				t.Errorf("load %d: round %d has the order %v when reversed, and round %d has %v; want the same", i, round, d.subjects, round+1, next[i].subjects)
			}
		}
	}
}

func TestAlwaysAndRedisWithFsyncRunApartFromAllOthers(t *testing.T) {
	for round := range 2 {
		for _, d := range comparisons(round) {
			if slices.Contains(d.subjects, always) != slices.Contains(d.subjects, redisAlways) ||
				slices.Contains(d.subjects, always) && len(d.subjects) != 2 {
				t.Errorf("round %d, %v: %v are compared with each other", round, d.load, d.subjects)
			}
		}
	}
}

func TestABuildAndTheOtherOneTakeTurns(t *testing.T) {
	b := &bench{sites: map[string]*site{always: {}, always + otherBuild: {}, etcdServer: {}}}
	for round, want := range [][]string{
		{etcdServer, always, always + otherBuild},
		{always + otherBuild, always, etcdServer},
	} {
		var got []string
		for name := range b.turns(round, orderOf(round, []string{etcdServer, memory, always})) {
			got = append(got, name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("round %d has the order %v, want %v", round, got, want)
		}
	}
}

func TestEachServerIsMeasuredWithOneAndWithManyClients(t *testing.T) {
	for _, l := range []load{{clients: 1}, {clients: manyClients}, {clients: manyClients, hot: true}} {
		var got []string
		for _, d := range comparisons(0) {
			if d.load == l {
				got = append(got, d.subjects...)
			}
		}
		for _, s := range subjects {
			if n := len(slices.DeleteFunc(slices.Clone(got), func(name string) bool { return name != s.name })); n != 1 {
				t.Errorf("%v: %s runs %d times in a round", l, s.name, n)
			}
		}
	}
}
