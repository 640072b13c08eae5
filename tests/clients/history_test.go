package clients

import (
	"errors"
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
			if err := errors.Join(c.Send("SIMBA.ACQUIRE", mutex, "c", 600_000), c.Send("SIMBA.RELEASE", mutex, "c")); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
