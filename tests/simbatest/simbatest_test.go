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
		t.Fatalf("%s owns it", owner)
	}
	s.Restart()
	if owner := acquire(t, s, "second"); owner != "first" {
		t.Errorf("after the restart %s owns it", owner)
	}
	s.Stop()
	s.Start()
	if owner := acquire(t, s, "second"); owner != "first" {
		t.Errorf("after the stop %s owns it", owner)
	}
	s.Replace()
	if owner := acquire(t, s, "second"); owner != "second" {
		t.Errorf("at a server without data %s owns it", owner)
	}
}

func TestEveryEngineServes(t *testing.T) {
	for _, engine := range simbatest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			if owner := acquire(t, simbatest.StartOn(t, engine), "first"); owner != "first" {
				t.Errorf("%s owns it", owner)
			}
		})
	}
}

// acquire returns the owner of the mutex after an ACQUIRE.
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
