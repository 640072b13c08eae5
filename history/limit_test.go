package history

import (
	"testing"

	"github.com/simba-resp/simba-resp"
)

// The documentation of SIMBA.HISTORY promises this number of events for every engine with a store.
func TestEventLogKeepsDocumentedHistory(t *testing.T) {
	const documented = 10_000
	c := NewLog(&recorder{}, 0, false)
	count := func(m string) int { return len(c.Find(simba.HistoryRequest{Mutex: m, Count: 2 * documented})) }
	c.Record(acquired("first", "a", 1))
	for i := range documented - 1 {
		c.Record(acquired("m", "a", uint64(i+1)))
	}
	if first, m := count("first"), count("m"); first != 1 || m != documented-1 {
		t.Errorf("after %d events the log keeps %d of the mutex first and %d of the mutex m, want 1 and %d", documented, first, m, documented-1)
	}
	c.Record(acquired("m", "a", documented))
	if first, m := count("first"), count("m"); first != 0 || m != documented {
		t.Errorf("after one event more the log keeps %d of the mutex first and %d of the mutex m, want 0 and %d", first, m, documented)
	}
}
