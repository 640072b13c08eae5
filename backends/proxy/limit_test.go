package proxy

import (
	"testing"

	"github.com/simba-resp/simba-resp"
)

// What the documentation says of SIMBA.HISTORY, and what every engine with a store asks for.
func TestEventLogKeepsDocumentedHistory(t *testing.T) {
	const documented = 10_000
	c := NewEventLog(&paper{}, 0)
	count := func(m string) int { return len(c.Find(simba.HistoryRequest{Mutex: m, Count: 2 * documented})) }
	c.Record(acquired("first", "a", 1))
	for i := range documented - 1 {
		c.Record(acquired("m", "a", uint64(i+1)))
	}
	if first, m := count("first"), count("m"); first != 1 || m != documented-1 {
		t.Errorf("of as many there are %d and %d", first, m)
	}
	c.Record(acquired("m", "a", documented))
	if first, m := count("first"), count("m"); first != 0 || m != documented {
		t.Errorf("of one more there are %d and %d", first, m)
	}
}
