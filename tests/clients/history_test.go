package clients

import (
	"errors"
	"slices"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// pairs acquires and releases a mutex n times, with two events each time.
func pairs(t *testing.T, s *simbatest.Server, mutex string, n int) {
	t.Helper()
	c := simbatest.Conn(t, s)
	const pipeline = 500
	for n > 0 {
		some := min(n, pipeline)
		for range some {
			simbatest.Must(t, errors.Join(c.Send("SIMBA.ACQUIRE", mutex, "c", 600_000), c.Send("SIMBA.RELEASE", mutex, "c")))
		}
		simbatest.Must(t, c.Flush())
		for range some {
			if r, err := simbatest.ToRecord(c.Receive()); err != nil || r["status"] != "acquired" {
				t.Fatalf("SIMBA.ACQUIRE returns %v, %v, want acquired", r, err)
			}
			if released, err := redis.Int(c.Receive()); err != nil || released != 1 {
				t.Fatalf("SIMBA.RELEASE returns %v, %v, want 1", released, err)
			}
		}
		n -= some
	}
}

// The default limit of 10,000 events also holds after a restart.
func TestTheHistoryHasTheLastTenThousandEvents(t *testing.T) {
	s := simbatest.Start(t)
	events := func(mutex string) int {
		t.Helper()
		list, err := redis.Values(simbatest.Conn(t, s).Do("SIMBA.HISTORY", mutex, "COUNT", 10_000))
		simbatest.Must(t, err)
		return len(list)
	}
	pairs(t, s, "first", 1)
	pairs(t, s, "m", 4_999)
	if first, m := events("first"), events("m"); first != 2 || m != 9_998 {
		t.Errorf("after 10,000 events the histories of first and m have %d and %d events, want 2 and 9,998", first, m)
	}
	pairs(t, s, "m", 1)
	for again := range 2 {
		if first, m := events("first"), events("m"); first != 0 || m != 10_000 {
			t.Errorf("after two more events the histories of first and m have %d and %d events, want 0 and 10,000; restarts: %d", first, m, again)
		}
		if again == 0 {
			s.Kill()
			s = simbatest.StartIn(t, s.Dir)
		}
	}
}

// history returns the kind, the owner, the token and the number of the mutex's events.
func history(t *testing.T, s *simbatest.Server, mutex string, options ...any) (kinds []string, events []simbatest.Record) {
	t.Helper()
	events, err := simbatest.ToRecords(simbatest.Conn(t, s).Do("SIMBA.HISTORY", append([]any{mutex}, options...)...))
	simbatest.Must(t, err)
	if !slices.IsSortedFunc(events, func(a, b simbatest.Record) int { return int(a.Number("seq") - b.Number("seq")) }) {
		t.Errorf("the events are not sorted by number: %v", events)
	}
	for _, e := range events {
		kinds = append(kinds, e.Text("event")+" "+e.Text("owner"))
	}
	return kinds, events
}

func TestTheHistoryHasThePresentOwnersGrantHoweverOldItIs(t *testing.T) {
	s := simbatest.Start(t, "--history", "1000")
	c := simbatest.Conn(t, s)
	grant := simbatest.DoRecord(t, c, "SIMBA.ACQUIRE", "job", "a", 600_000)
	pairs(t, s, "other", 500)
	simbatest.DoRecord(t, c, "SIMBA.ACQUIRE", "job", "b", 600_000)
	for again := range 2 {
		kinds, events := history(t, s, "job")
		if want := []string{"acquired a", "queued b"}; again == 0 && !slices.Equal(kinds, want) {
			t.Errorf("after 1,000 events of another mutex, the history is %q, want %q", kinds, want)
		}
		if len(events) == 0 || events[0].Number("token") != grant.Number("token") || events[0].Number("seq") != 0 || events[0].Number("at") == 0 {
			t.Errorf("the history is %v, want the grant of token %d first; restarts: %d", events, grant.Number("token"), again)
		}
		if kinds, _ := history(t, s, "job", "SINCE", 1); slices.Contains(kinds, "acquired a") {
			t.Errorf("the history since the first event is %q, want only events that are kept", kinds)
		}
		if again == 0 {
			s.Kill()
			s = simbatest.StartIn(t, s.Dir, "--history", "1000")
		}
	}
	for range 3 {
		simbatest.DoRecord(t, simbatest.Conn(t, s), "SIMBA.ACQUIRE", "job", "c", 600_000)
		if _, err := simbatest.Conn(t, s).Do("SIMBA.RELEASE", "job", "c"); err != nil {
			t.Fatal(err)
		}
	}
	if kinds, _ := history(t, s, "job", "COUNT", 2); !slices.Equal(kinds, []string{"acquired a", "queued c", "left c"}) {
		t.Errorf("with more newer events than COUNT, the history is %q, want the grant before the two newest", kinds)
	}
	simbatest.DoOne(t, simbatest.Conn(t, s), "SIMBA.RELEASE", "job", "a")
	if kinds, _ := history(t, s, "job"); slices.Contains(kinds, "acquired a") {
		t.Errorf("after the release the history is %q, want no grant that is not kept", kinds)
	}
}

// A server that has just started, or did not see the grant, shows it too.
func TestTheHistoryHasTheGrantOfAnotherServer(t *testing.T) {
	simbatest.OnEveryStore(t, func(t *testing.T, store *simbatest.Shared) {
		a, late := store.Start(t), store.Start(t)
		conn := simbatest.Conn(t, a)
		simbatest.DoRecord(t, simbatest.Conn(t, late), "SIMBA.ACQUIRE", "job", "first", 600_000)
		simbatest.DoOne(t, simbatest.Conn(t, late), "SIMBA.RELEASE", "job", "first")
		grant := simbatest.DoRecord(t, conn, "SIMBA.ACQUIRE", "job", "a", 600_000)
		for name, s := range map[string]*simbatest.Server{"granted it": a, "ran then": late, "started later": store.Start(t)} {
			kinds, events := history(t, s, "job")
			n := len(events) - 1
			if n < 0 || kinds[n] != "acquired a" || events[n].Number("token") != grant.Number("token") {
				t.Errorf("the history of the server that %s is %v, want the grant of token %d last", name, events, grant.Number("token"))
			}
		}
	})
}
