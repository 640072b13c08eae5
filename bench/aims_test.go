package main

import (
	"strings"
	"testing"
)

func TestAnAimThatWasNotMeasuredStaysInTheTable(t *testing.T) {
	all := newResults().aims()
	if len(all) != 20 {
		t.Errorf("there are %d aims, not 20", len(all))
	}
	for _, a := range all {
		if a.verdict() != "not measured" {
			t.Errorf("%s: %s, although nothing was measured", a.what, a.verdict())
		}
	}
}

func TestAMissedAimSaysSo(t *testing.T) {
	for _, c := range []struct {
		most   bool
		values []float64
		want   string
	}{
		{false, []float64{0.9, 1.2, 1.1}, "met"},
		{false, []float64{0.9, 1.2, 1.09}, "**missed**"},
		{true, []float64{0.9, 1.2, 1.1}, "met"},
		{true, []float64{0.9, 1.2, 1.11}, "**missed**"},
	} {
		if got := (aim{limit: 1.1, most: c.most, values: c.values}).verdict(); got != c.want {
			t.Errorf("%v, upper limit %v: %s, not %s", c.values, c.most, got, c.want)
		}
	}
}

func TestThePageHasEveryAim(t *testing.T) {
	b := &bench{results: newResults()}
	page := b.page("a run", nil)
	for _, a := range b.aims() {
		if !strings.Contains(page, "| "+a.what+" | "+a.bound()+" |") {
			t.Errorf("the page lacks %q", a.what)
		}
	}
}
