package history

import (
	"fmt"
	"testing"

	"github.com/simba-resp/simba-resp"
)

func TestTenureLengthsRunFromBeginningToEnd(t *testing.T) {
	l := NewLog(new(recorder), 0, false)
	l.Record(
		simba.Event{At: 1000, Kind: simba.EventAcquired, Mutex: "a", Token: 1},
		simba.Event{At: 1000, Kind: simba.EventAcquired, Mutex: "b", Token: 1},
		simba.Event{At: 3000, Kind: simba.EventReleased, Mutex: "a", Token: 1},
		simba.Event{At: 3000, Kind: simba.EventReleased, Mutex: "a", Token: 1}, // repeated
		simba.Event{At: 9000, Kind: simba.EventExpired, Mutex: "b", Token: 2},  // no beginning
		simba.Event{At: 9000, Kind: simba.EventBroken, Mutex: "c", Token: 5},
	)
	got := l.TenureLengths()
	if got.Count() != 1 || got.Micros != 2_000_000 {
		t.Errorf("TenureLengths has %d tenures with a sum of %d µs, want 1 tenure of 2 s", got.Count(), got.Micros)
	}
}

// The log keeps the beginning of a running tenure when it removes the event, but not of any number
// of them.
func TestTenureLengthsOfLongTenures(t *testing.T) {
	l := NewLog(new(recorder), 1, false)
	for i := range uint64(2 * maxLast) {
		l.Record(simba.Event{At: 1000, Kind: simba.EventAcquired, Mutex: fmt.Sprint(i), Token: i + 1})
	}
	l.Record(simba.Event{At: 3000, Kind: simba.EventReleased, Mutex: "0", Token: 1})
	if got := l.TenureLengths(); got.Count() != 1 || got.Micros != 2_000_000 {
		t.Errorf("TenureLengths has %d tenures with a sum of %d µs, want 1 tenure of 2 s", got.Count(), got.Micros)
	}
	if len(l.last) > maxLast+1 {
		t.Errorf("the log keeps the last events of %d mutexes, want at most %d", len(l.last), maxLast+1)
	}
}
