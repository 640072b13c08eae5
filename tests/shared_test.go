package tests

import (
	"testing"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// shared is a real store, and how servers are pointed at it.
type shared struct {
	engine string
	store  *stores.Server
	args   []string // flags of a server
}

// sharedEngines are the engines that keep their mutexes in a store.
var sharedEngines = []string{"redis", "mysql", "zookeeper"}

// openShared starts a store for an engine.
func openShared(t testing.TB, engine string) *shared {
	t.Helper()
	s := &shared{engine: engine}
	switch engine {
	case "redis":
		s.store = stores.Redis(t)
	case "mysql":
		s.store = stores.MariaDB(t)
	case "zookeeper":
		s.store = stores.ZooKeeper(t)
	default:
		t.Fatalf("no store for engine %s", engine)
	}
	s.args = s.at(s.store.Addr)
	return s
}

// at are the flags of a server that finds the store at an address: its own, or that of a link to it.
func (s *shared) at(addr string) []string {
	args := []string{"--engine", s.engine}
	switch s.engine {
	case "redis":
		args = append(args, "--redis-url", "redis://"+addr)
	case "mysql":
		args = append(args, "--mysql-dsn", "root@tcp("+addr+")/simba", "--mysql-migrate", "--mysql-poll", "50ms")
	case "zookeeper":
		args = append(args, "--zookeeper-servers", addr, "--zookeeper-session-timeout", "4s")
	}
	return args
}

// serve runs one more server on the store.
func (s *shared) serve(t testing.TB, flags ...string) *server {
	t.Helper()
	return start(t, append(s.args[:len(s.args):len(s.args)], flags...)...)
}

// onEveryStore runs a test on each engine with a store, which is the test's own, side by side: they mostly wait.
func onEveryStore(t *testing.T, test func(*testing.T, *shared)) {
	for _, engine := range sharedEngines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, openShared(t, engine))
		})
	}
}
