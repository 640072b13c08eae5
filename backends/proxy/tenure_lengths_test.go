package proxy

import (
	"testing"

	"github.com/simba-resp/simba-resp"
)

func TestTenureLengthsRunFromBeginningToEnd(t *testing.T) {
	l := NewEventLog(new(recorder), 0)
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

func TestTenureLengthsBoundTheOpenTenures(t *testing.T) {
	var x tenureLengths
	for i := range uint64(maxOpenTenures + 5) {
		x.note(simba.Event{Kind: simba.EventAcquired, Mutex: string(binaryName(i)), Token: i + 1})
	}
	if len(x.begun) != maxOpenTenures {
		t.Errorf("note keeps %d running tenures, want %d", len(x.begun), maxOpenTenures)
	}
	x.note(simba.Event{Kind: simba.EventReleased, Mutex: string(binaryName(0)), Token: 1})
	if len(x.begun) != maxOpenTenures-1 || x.lengths.Count() != 1 {
		t.Errorf("after one end, note keeps %d running tenures and has measured %d; want %d and 1", len(x.begun), x.lengths.Count(), maxOpenTenures-1)
	}
}

func binaryName(i uint64) []byte { return []byte{byte(i), byte(i >> 8), byte(i >> 16)} }
