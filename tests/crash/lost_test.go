// Package crash tests what survives crashes of the server or the machine, reboots and restarts.
package crash

import (
	"os"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// A new data directory knows no token and no lease of the lost one.
func TestAfterALostDiskTokensGrowAndGrantsWaitForTheRecoveryDelay(t *testing.T) {
	s := simbatest.Start(t)
	c := simbatest.GoRedis(t, s)
	var last int64
	for range 10 {
		simbatest.Acquire(t, c, "job", "a", 1000)
		simbatest.Must(t, c.Do(t.Context(), "SIMBA.RELEASE", "job", "a").Err())
		_, last = simbatest.Acquire(t, c, "job", "b", 1000)
		simbatest.Must(t, c.Do(t.Context(), "SIMBA.BREAK", "job").Err())
	}
	seq := lastSeq(t, c)
	s.Kill()
	simbatest.Must(t, os.RemoveAll(s.Dir))

	const delay = 2 * time.Second
	began := time.Now()
	again := simbatest.StartIn(t, s.Dir, "--recovery-delay", delay.String())
	again.Wants(t, "level=WARN .*new data directory")
	again.Wants(t, "level=WARN .*recovering: .* wait=2s")
	c = goredis.NewClient(&goredis.Options{Addr: again.Addr, ReadTimeout: simbatest.Patience})
	defer c.Close()
	if status, _ := simbatest.Acquire(t, c, "job", "c", 1000, "NOQUEUE"); status != "busy" && time.Since(began) < delay {
		t.Errorf("during the recovery delay ACQUIRE returns %s, want busy", status)
	}
	status, token := simbatest.Acquire(t, c, "job", "c", 1000, "WAIT", 0)
	if waited := time.Since(began); waited < delay {
		t.Errorf("the server grants after %v, during the recovery delay", waited)
	}
	if status != "acquired" || token <= last {
		t.Errorf("ACQUIRE returns %s with token %d, want acquired with a token above %d", status, token, last)
	}
	if got := lastSeq(t, c); got <= seq {
		t.Errorf("the last event number is %d, want one above %d", got, seq)
	}
}

// lastSeq returns the largest event number of the mutex job.
func lastSeq(t *testing.T, c *goredis.Client) (last int64) {
	t.Helper()
	events, err := simbatest.ToRecords(c.Do(t.Context(), "SIMBA.HISTORY", "job").Result())
	if err != nil || len(events) == 0 {
		t.Fatalf("SIMBA.HISTORY returns %v, %v, want events", events, err)
	}
	for _, e := range events {
		last = max(last, e["seq"].(int64))
	}
	return last
}

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
