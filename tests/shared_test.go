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
	s := &shared{engine: engine, args: []string{"--engine", engine}}
	switch engine {
	case "redis":
		s.store = stores.Redis(t)
		s.args = append(s.args, "--redis-url", "redis://"+s.store.Addr)
	case "mysql":
		s.store = stores.MariaDB(t)
		s.args = append(s.args, "--mysql-dsn", s.dsn(), "--mysql-migrate", "--mysql-poll", "50ms")
	case "zookeeper":
		s.store = stores.ZooKeeper(t)
		s.args = append(s.args, "--zookeeper-servers", s.store.Addr, "--zookeeper-session-timeout", "4s")
	default:
		t.Fatalf("no store for engine %s", engine)
	}
	return s
}

// dsn is the store of engine mysql, as root.
func (s *shared) dsn() string { return "root@tcp(" + s.store.Addr + ")/simba" }

// serve runs one more server on the store.
func (s *shared) serve(t testing.TB, flags ...string) *server {
	t.Helper()
	return start(t, append(s.args[:len(s.args):len(s.args)], flags...)...)
}

// onEveryStore runs a test on each engine with a store, which is the test's own.
func onEveryStore(t *testing.T, test func(*testing.T, *shared)) {
	for _, engine := range sharedEngines {
		t.Run(engine, func(t *testing.T) { test(t, openShared(t, engine)) })
	}
}
