package backendtest

import (
	"testing"
	"time"
)

// After a late reply to a renewal, a contender is no longer sure to own the mutex. It may have
// released the mutex, so its earlier reply no longer counts.
func TestFindViolationsUsesTheLastReply(t *testing.T) {
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	tenure := func(contender string, token uint64, from, to int) ownership {
		return ownership{mutex: "m", contender: contender, token: token, from: at(from), to: at(to)}
	}
	for name, c := range map[string]struct {
		all        []ownership
		violations int
	}{
		"one after the other":        {[]ownership{tenure("a", 1, 0, 50), tenure("b", 2, 60, 90)}, 0},
		"two at once":                {[]ownership{tenure("a", 1, 0, 50), tenure("b", 2, 30, 90)}, 1},
		"renewed late, and released": {[]ownership{tenure("a", 1, 0, 50), tenure("a", 1, 25, 20), tenure("b", 2, 30, 90)}, 0},
		"renewed late by b":          {[]ownership{tenure("a", 1, 0, 50), tenure("b", 2, 25, 20), tenure("b", 2, 30, 90)}, 1},
	} {
		if violations := findViolations(c.all); len(violations) != c.violations {
			t.Errorf("findViolations, %s: %q; want %d violations", name, violations, c.violations)
		}
	}
}
