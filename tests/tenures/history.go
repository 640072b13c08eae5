package tenures

import (
	"fmt"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// Event is an event of SIMBA.HISTORY.
type Event struct {
	Seq                 int64
	Kind, Owner, Reason string
	Token               uint64
	At                  time.Duration // since 1970
}

// Events converts the reply to SIMBA.HISTORY.
func Events(reply any, err error) (events []Event, _ error) {
	records, err := simbatest.ToRecords(reply, err)
	for _, r := range records {
		events = append(events, Event{
			r.Number("seq"), r.Text("event"), r.Text("owner"), r.Text("reason"), uint64(r.Number("token")),
			time.Duration(r.Number("at")) * time.Millisecond,
		})
	}
	return events, err
}

// Completeness says what a server's history may lack.
type Completeness int

const (
	Complete Completeness = iota // the server has caused and recorded each event
	Gaps                         // it may lack ends of tenures, and whole tenures
	Partial                      // it may also have the events of other servers out of order
)

// InHistory returns the tenures that begin in a history, and descriptions of what breaks a rule:
// tenures overlap, tokens do not ascend, or a tenure begins or ends twice. To is 0 for a tenure
// without an end.
func InHistory(events []Event, c Completeness) (all []Tenure, wrong []string) {
	breaks := func(format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf(format, args...))
	}
	var last uint64 // the largest token so far
	running := false
	begun, ended := make(map[uint64]bool), make(map[uint64]bool)
	for _, e := range events {
		switch e.Kind {
		case "acquired":
			if running && c == Complete {
				breaks("%s acquires with token %d while the tenure of token %d runs", e.Owner, e.Token, last)
			}
			if e.Token <= last && c != Partial {
				breaks("%s gets token %d after token %d", e.Owner, e.Token, last)
			}
			if begun[e.Token] || ended[e.Token] && c != Partial {
				breaks("the tenure of token %d begins again", e.Token)
			}
			last, running, begun[e.Token] = max(last, e.Token), true, true
			all = append(all, Tenure{e.Owner, e.Token, e.At, 0})
		case "released", "expired", "broken":
			if c != Gaps && ended[e.Token] || c == Complete && (!running || e.Token != last) {
				breaks("the tenure of token %d is %s; the last one that began has token %d and runs: %v", e.Token, e.Kind, last, running)
			}
			ended[e.Token] = true
			running = running && e.Token != last
			if n := len(all); n > 0 && all[n-1].Token == e.Token {
				all[n-1].To = e.At
			}
		}
	}
	return all, wrong
}

// Unknown returns the noted tenures that do not begin in a history.
func Unknown(noted, inHistory []Tenure) (missing []Tenure) {
	type id struct {
		owner string
		token uint64
	}
	seen := make(map[id]bool)
	for _, t := range inHistory {
		seen[id{t.Owner, t.Token}] = true
	}
	for _, t := range noted {
		if !seen[id{t.Owner, t.Token}] {
			missing = append(missing, t)
		}
	}
	return missing
}

// ServerSaw fails the test if a complete history breaks a rule, or if a noted tenure is missing in
// it. It returns the number of tenures in the history.
func ServerSaw(t testing.TB, events []Event, noted []Tenure) int {
	t.Helper()
	all, wrong := InHistory(events, Complete)
	for _, w := range wrong {
		t.Error("in the history, ", w)
	}
	if missing := Unknown(noted, all); len(missing) > 0 {
		t.Errorf("these noted tenures are not in the server's history: %v", missing)
	}
	return len(all)
}
