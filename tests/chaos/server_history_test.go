package chaos

import (
	"fmt"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

type event struct {
	kind, owner, reason string
	at                  int64 // Unix ms
	token               uint64
}

func (w *world) serverHistory(t *testing.T, server int, mutex string) (events []event) {
	t.Helper()
	conn, err := redis.Dial("tcp", w.servers[server].addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	records, err := simbatest.ToRecords(conn.Do("SIMBA.HISTORY", mutex, "COUNT", 10_000))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		events = append(events, event{
			kind: r.Text("event"), owner: r.Text("owner"), reason: r.Text("reason"), at: r.Number("at"), token: uint64(r.Number("token")),
		})
	}
	return events
}

// overlaps returns the violations in a server's history: tenures that overlap, and tokens that do
// not grow. A partial history may have gaps, and events out of order. But even in it, each tenure
// begins and ends only once.
func (r *rules) overlaps(events []event) (wrong []string) {
	var last uint64 // the token of the last tenure that began
	var running bool
	begun, ended := make(map[uint64]bool), make(map[uint64]bool)
	for _, e := range events {
		switch e.kind {
		case "acquired":
			if running && !r.partial {
				wrong = append(wrong, fmt.Sprintf("tenure %d begins while tenure %d runs", e.token, last))
			}
			if e.token <= last && !r.partial {
				wrong = append(wrong, fmt.Sprintf("tenure %d begins after tenure %d", e.token, last))
			}
			if begun[e.token] || ended[e.token] && !r.partial {
				wrong = append(wrong, fmt.Sprintf("tenure %d begins again", e.token))
			}
			last, running, begun[e.token] = max(last, e.token), true, true
		case "released", "expired", "broken":
			if ended[e.token] || !r.partial && (!running || e.token != last) {
				wrong = append(wrong, fmt.Sprintf("tenure %d is %s, but the last tenure that began is %d (still running: %v)", e.token, e.kind, last, running))
			}
			ended[e.token] = true
			running = running && e.token != last
		}
	}
	return wrong
}
