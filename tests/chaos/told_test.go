package chaos

import (
	"fmt"
	"testing"

	"github.com/gomodule/redigo/redis"
)

// told returns what is wrong with what a server remembers of some mutexes: tenures that
// overlap, or tokens that do not grow.
func (w *world) told(t *testing.T, server int, names []string) (wrong []string) {
	t.Helper()
	conn, err := redis.Dial("tcp", w.servers[server].Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, mutex := range names {
		records, err := redis.Values(conn.Do("SIMBA.HISTORY", mutex, "COUNT", 10_000))
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range overlaps(t, records, w.rules.partial) {
			wrong = append(wrong, fmt.Sprintf("%s %s: in the history of server %d %s", w.engine, mutex, server, problem))
		}
	}
	return wrong
}

// overlaps reads a history. One that is partial may lack events, but has none out of order.
func overlaps(t *testing.T, records []any, partial bool) (wrong []string) {
	t.Helper()
	var last uint64  // the token of the last tenure
	var running bool // it has not ended
	for _, r := range records {
		event, token := eventOf(t, r)
		switch event {
		case "acquired":
			if running && !partial {
				wrong = append(wrong, fmt.Sprintf("tenure %d begins while %d runs", token, last))
			}
			if token <= last {
				wrong = append(wrong, fmt.Sprintf("tenure %d begins after %d", token, last))
			}
			last, running = max(last, token), true
		case "released", "expired", "broken":
			if token < last || token > last && !partial || token == last && !running {
				wrong = append(wrong, fmt.Sprintf("tenure %d is %s after %d began; that runs: %v", token, event, last, running))
			}
			last, running = max(last, token), false
		}
	}
	return wrong
}

// eventOf takes a record apart, in RESP2.
func eventOf(t *testing.T, record any) (event string, token uint64) {
	t.Helper()
	f, err := redis.Values(record, nil)
	for i := 0; i+1 < len(f) && err == nil; i += 2 {
		switch name, _ := redis.String(f[i], nil); name {
		case "event":
			event, err = redis.String(f[i+1], nil)
		case "token":
			token, err = redis.Uint64(f[i+1], nil)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return event, token
}
