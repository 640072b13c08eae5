package simbatest_test

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }

func TestARestartedServerHasItsAddressAndItsData(t *testing.T) {
	s := simbatest.Start(t)
	if owner := acquire(t, s, "first"); owner != "first" {
		t.Fatalf("%q owns the mutex, want first", owner)
	}
	s.Restart()
	if owner := acquire(t, s, "second"); owner != "first" {
		t.Errorf("after the restart %q owns the mutex, want first", owner)
	}
	s.Stop()
	s.Start()
	if owner := acquire(t, s, "second"); owner != "first" {
		t.Errorf("after the stop %q owns the mutex, want first", owner)
	}
	s.Replace()
	if owner := acquire(t, s, "second"); owner != "second" {
		t.Errorf("on a server without data %q owns the mutex, want second", owner)
	}
}

func TestEveryEngineServes(t *testing.T) {
	for _, engine := range simbatest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			if owner := acquire(t, simbatest.StartOn(t, engine), "first"); owner != "first" {
				t.Errorf("%q owns the mutex, want first", owner)
			}
		})
	}
}

// acquire sends SIMBA.ACQUIRE for a contender, and returns the owner in the reply.
func acquire(t *testing.T, s *simbatest.Server, id string) string {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer rdb.Close()
	r, err := simbatest.ToRecord(rdb.Do(context.Background(), "simba.acquire", "m", id, 60_000, "noqueue").Result())
	if err != nil {
		t.Fatal(err)
	}
	return r.Text("owner")
}
