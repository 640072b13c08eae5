package proxy

import (
	"time"

	"github.com/simba-resp/simba-resp"
)

// maxOpenTenures is how many running tenures tenureLengths keeps at most. While it has so many, it
// does not measure tenures that begin.
const maxOpenTenures = 10_000

// tenureLengths measures tenures from their events. It is not safe for concurrent use.
type tenureLengths struct {
	begun   map[string]simba.Event // the beginning of the running tenure, by mutex
	lengths simba.Durations
}

// note adds the beginning or the end of a tenure.
func (t *tenureLengths) note(e simba.Event) {
	if e.Kind == simba.EventAcquired {
		if t.begun == nil {
			t.begun = make(map[string]simba.Event)
		}
		if _, known := t.begun[e.Mutex]; known || len(t.begun) < maxOpenTenures {
			t.begun[e.Mutex] = e
		}
		return
	}
	begin, ok := t.begun[e.Mutex]
	if !ok || begin.Token > e.Token {
		return
	}
	delete(t.begun, e.Mutex)
	if begin.Token == e.Token {
		t.lengths.Add(time.Duration(e.At-begin.At) * time.Millisecond)
	}
}
