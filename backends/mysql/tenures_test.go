package mysql

import (
	"fmt"
	"testing"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

func rowOf(owner string, token, version uint64, live bool) row {
	return row{State: proxy.State{Owner: owner, Revision: version, Live: live}, fencing: token}
}

func TestRememberedTenuresAreBounded(t *testing.T) {
	var s tenures
	live := func(owner string, version uint64) row {
		return rowOf(owner, 4, version, true)
	}
	for i := range 5 * maxTenures {
		s.note(fmt.Sprint(i), live("a", 4), 0)
		if n := len(s.recent) + len(s.older); n > 2*maxTenures {
			t.Fatalf("the maps have %d tenures, want at most %d", n, 2*maxTenures)
		}
	}
	for i := 4 * maxTenures; i < 5*maxTenures; i++ {
		if s.note(fmt.Sprint(i), live("b", 5), 0) {
			t.Fatalf("note of mutex %d with a new owner and the old token returned true, want false", i)
		}
	}
	if !s.note("0", live("b", 5), 0) {
		t.Error("note of mutex 0 returned false, want true: its first tenure is to be forgotten")
	}
}

// Answers may arrive in any order.
func TestSuccessorOfAJVMOwnerWithoutATokenIsRecognized(t *testing.T) {
	const ours = 5 * tokenUnit
	live := func(owner string, token, version uint64) row {
		return rowOf(owner, token, version, true)
	}
	over := func(owner string, token, version uint64) row {
		return rowOf(owner, token, version, false)
	}
	var s tenures
	for i, c := range []struct {
		row   row
		since uint64
		own   bool
		why   string
	}{
		{live("a", 9, 9), 0, true, "the first known tenure"},
		{over("a", 9, 9), 9, true, "the tenure of a expired"},
		{live("a", 9, 9), 0, true, "the row was read before the expiry"},
		{live("b", 9, 10), 9, false, "b took no token"},
		{live("b", 10_000_001, 10), 9, true, "a server has assigned b a token"},
		{live("b", 9, 10), 9, false, "the row was read just before the assignment"},
		{live("b", 10_000_001, 12), 10, true, "b renewed"},
		{live("b", 9, 11), 10, false, "the row was read before the assignment"},
		{over("", 10_000_001, 15), 12, true, "b released the mutex"},
		{live("b", 10_000_001, 16), 15, false, "b took no token again"},
		{live("c", 10_000_002, 17), 15, true, "c took a token"},
		{live("c", 10_000_002, 16), 0, true, "the row was read before c renewed"},
		{live("d", 10_000_003, 19), 17, true, "d took a token, and renewed"},
		{live("e", 1, 2), 19, true, "the row was deleted"},
		{over("e", 1, 3), 2, true, "e renewed, and its lease expired"},
		{live("e", 1, 4), 3, false, "e took no token"},
		{live("e", 4_000_001, 4), 3, true, "a server has assigned e a token"},
		{over("us", ours, 5), 4, true, "the tenure is of this engine"},
		{live("e", ours, 6), 4, true, "the row itself shows that e took no token"},
		{over("", 6_000_001, 9), 4, true, "an unknown tenure was released"},
		{live("f", 6_000_001, 10), 9, false, "f took no token"},
		{row{missing: true}, 9, true, "the row was deleted"},
	} {
		if own := s.note("m", c.row, c.since); own != c.own {
			t.Errorf("round %d, %s: note of %+v returned %v, want %v", i, c.why, c.row, own, c.own)
		}
	}
}
