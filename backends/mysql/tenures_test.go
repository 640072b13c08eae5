package mysql

import (
	"fmt"
	"testing"
)

func TestRememberedTenuresAreBounded(t *testing.T) {
	var s tenures
	live := func(owner string, version uint64) row {
		return row{owner: owner, fencingToken: 4, version: version, fenced: true, live: true}
	}
	for i := range 5 * maxTenures {
		s.note(fmt.Sprint(i), live("a", 4), 0)
		if n := len(s.recent) + len(s.older); n > 2*maxTenures {
			t.Fatalf("%d tenures are remembered, more than the limit", n)
		}
	}
	for i := 4 * maxTenures; i < 5*maxTenures; i++ {
		if s.note(fmt.Sprint(i), live("b", 5), 0) {
			t.Fatalf("the owner of %d has the token of the one before", i)
		}
	}
	if !s.note("0", live("b", 5), 0) {
		t.Error("the first tenure was not forgotten")
	}
}

// Answers may arrive in any order.
func TestSuccessorOfAJVMOwnerWithoutATokenIsRecognized(t *testing.T) {
	const ours = 5 * tokenUnit
	live := func(owner string, token, version uint64) row {
		return row{owner: owner, fencingToken: token, version: version, fenced: true, live: true}
	}
	over := func(owner string, token, version uint64) row {
		return row{owner: owner, fencingToken: token, version: version, fenced: true}
	}
	var s tenures
	for i, c := range []struct {
		row   row
		since uint64
		own   bool
		why   string
	}{
		{live("a", 9, 9), 0, true, "the first known tenure"},
		{over("a", 9, 9), 9, true, "it expired"},
		{live("a", 9, 9), 0, true, "it was read before that"},
		{live("b", 9, 10), 9, false, "it took none"},
		{live("b", 10_000_001, 10), 9, true, "it has got one"},
		{live("b", 9, 10), 9, false, "it was read just before it got one"},
		{live("b", 10_000_001, 12), 10, true, "it renewed"},
		{live("b", 9, 11), 10, false, "it was read before it got one"},
		{over("", 10_000_001, 15), 12, true, "it was released"},
		{live("b", 10_000_001, 16), 15, false, "it took none again"},
		{live("c", 10_000_002, 17), 15, true, "it took one"},
		{live("c", 10_000_002, 16), 0, true, "it was read before it renewed"},
		{live("d", 10_000_003, 19), 17, true, "it took one, and renewed"},
		{live("e", 1, 2), 19, true, "the row was deleted"},
		{over("e", 1, 3), 2, true, "it renewed and expired"},
		{live("e", 1, 4), 3, false, "it took none"},
		{live("e", 4_000_001, 4), 3, true, "it has got one"},
		{over("us", ours, 5), 4, true, "it is ours"},
		{live("e", ours, 6), 4, true, "the row shows that it took none"},
		{over("", 6_000_001, 9), 4, true, "an unknown tenure was released"},
		{live("f", 6_000_001, 10), 9, false, "it took none"},
		{live("g", 10_000_002, 10), 9, true, "the row is from before the column"},
		{row{missing: true}, 9, true, "the row was deleted"},
	} {
		if own := s.note("m", c.row, c.since); own != c.own {
			t.Errorf("round %d, %s: note of %+v returned %v", i, c.why, c.row, own)
		}
	}
}
