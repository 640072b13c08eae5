package tenures

import (
	"fmt"
	"testing"
	"time"
)

func TestInHistoryFindsTwoTenures(t *testing.T) {
	is := func(kind string, token uint64) Event { return Event{Kind: kind, Token: token} }
	for i, c := range []struct {
		events   []Event
		complete Completeness
		wrong    int
	}{
		{[]Event{is("acquired", 1), is("queued", 0), is("released", 1), is("acquired", 2), is("expired", 2)}, Complete, 0},
		{[]Event{is("acquired", 1), is("acquired", 2)}, Complete, 1},
		{[]Event{is("acquired", 1), is("acquired", 2)}, Gaps, 0},
		{[]Event{is("acquired", 2), is("acquired", 1)}, Gaps, 1},
		{[]Event{is("acquired", 1), is("acquired", 2)}, Partial, 0},
		{[]Event{is("acquired", 2), is("broken", 2), is("acquired", 2)}, Partial, 1},
		{[]Event{is("acquired", 2), is("released", 2), is("released", 2)}, Partial, 1},
		{[]Event{is("acquired", 1), is("acquired", 2), is("released", 1)}, Complete, 2},
		{[]Event{is("acquired", 1), is("acquired", 2), is("released", 1)}, Partial, 0},
		{[]Event{is("released", 1), is("acquired", 1)}, Complete, 2},
		{[]Event{is("acquired", 1), is("released", 1), is("acquired", 1)}, Partial, 1},
		{[]Event{is("released", 1), is("acquired", 2)}, Complete, 1},
		{[]Event{is("released", 1), is("acquired", 2)}, Partial, 0},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if _, wrong := InHistory(c.events, c.complete); len(wrong) != c.wrong {
				t.Errorf("the checker found %d violations, want %d: %v", len(wrong), c.wrong, wrong)
			}
		})
	}
}

func TestNotedTenuresMustNotOverlapAndTokensAscend(t *testing.T) {
	a := Tenure{"a", 1, 0, 10 * time.Second}
	for next, want := range map[Tenure][2]int{
		{"b", 2, 11 * time.Second, 12 * time.Second}: {0, 0},
		{"b", 2, 10 * time.Second, 12 * time.Second}: {1, 0},
		{"b", 1, 11 * time.Second, 12 * time.Second}: {0, 1},
	} {
		var l Log
		l.Add(next)
		l.Add(a)
		all := l.InOrder()
		if got := [2]int{len(Overlaps(all)), len(Descents(all))}; got != want {
			t.Errorf("%v before %v: %d overlaps and %d descents, want %v", a, next, got[0], got[1], want)
		}
		if missing := Unknown(all, []Tenure{a}); len(missing) != 1 || missing[0] != next {
			t.Errorf("Unknown returns %v, want %v", missing, next)
		}
	}
}
