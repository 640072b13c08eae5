package mysql

import (
	"fmt"
	"testing"
)

// TestTheTenuresOfManyMutexesAreRememberedInBoundedMemory.
func TestTheTenuresOfManyMutexesAreRememberedInBoundedMemory(t *testing.T) {
	var s tenures
	live := func(owner string, version uint64) row {
		return row{owner: owner, token: 4, fencing: 4, version: version, fenced: true, live: true}
	}
	for i := range 5 * maxTenures {
		s.see(fmt.Sprint(i), live("a", 4), 0)
		if n := len(s.recent) + len(s.older); n > 2*maxTenures {
			t.Fatalf("%d are remembered", n)
		}
	}
	for i := 4 * maxTenures; i < 5*maxTenures; i++ {
		if s.see(fmt.Sprint(i), live("b", 5), 0) {
			t.Fatalf("the owner of %d has the token of the one before", i)
		}
	}
	if !s.see("0", live("b", 5), 0) {
		t.Error("the first was not forgotten")
	}
}

// TestWhoTookNoTokenIsToldByWhatWasSeenBefore, in whatever order answers come.
func TestWhoTookNoTokenIsToldByWhatWasSeenBefore(t *testing.T) {
	live := func(owner string, token, version uint64) row {
		return row{owner: owner, token: token, fencing: token, version: version, fenced: true, live: true}
	}
	over := func(owner string, token, version uint64) row {
		return row{owner: owner, token: token, fencing: token, version: version, fenced: true}
	}
	var s tenures
	for i, c := range []struct {
		row   row
		since uint64
		own   bool
		why   string
	}{
		{live("a", 9, 9), 0, true, "the first that is seen"},
		{over("a", 9, 9), 9, true, "it expired"},
		{live("a", 9, 9), 0, true, "it was read before that"},
		{live("b", 9, 10), 9, false, "it took none"},
		{live("b", 10, 10), 9, true, "it has got one"},
		{live("b", 9, 10), 9, false, "it was read just before it got one"},
		{live("b", 10, 12), 10, true, "it renewed"},
		{live("b", 9, 11), 10, false, "it was read before it got one"},
		{over("a", 9, 9), 0, true, "it was read long before"},
		{over("", 10, 15), 12, true, "it was released"},
		{live("b", 10, 16), 15, false, "it took none again"},
		{live("c", 17, 17), 15, true, "it took one"},
		{live("d", 18, 19), 17, true, "it took one, and renewed"},
		{live("e", 1, 2), 19, true, "the row was deleted"},
		{live("f", 0, 3), 2, false, "it has none yet"},
		{over("f", 0, 3), 2, false, "and expired"},
		{live("f", 3, 3), 2, true, "it has got one"},
		{live("g", 1, 5), 3, false, "it took one below the last that was given"},
		{over("", 0, 6), 3, true, "a free mutex needs none"},
		{live("h", 7, 7), 6, true, "it took one"},
		{over("h", 7, 7), 7, true, "it expired"},
		{over("h", 7, 8), 7, false, "it took none, and expired again"},
		{row{missing: true}, 8, true, "the row was deleted"},
	} {
		if own := s.see("m", c.row, c.since); own != c.own {
			t.Errorf("%d: %s: %+v has a token of its own: %v", i, c.why, c.row, own)
		}
	}
}
