package simbatest

import (
	"testing"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// Engines are the engines of the server.
var Engines = []string{"embedded", "redis", "mysql", "zookeeper"}

// StoreEngines are the engines that keep their mutexes in a store.
var StoreEngines = Engines[1:]

// StartOn returns a server of that engine, with a store of its own if the engine needs one. Where
// the store is not installed the test is skipped, and fails with CI=true.
func StartOn(t stores.TB, engine string, args ...string) *Server {
	t.Helper()
	_, flags := Store(t, engine)
	return Start(t, append(flags, args...)...)
}

// Store starts the store of an engine. It returns the store's address, "" if the engine has none,
// and the flags of servers that use it.
func Store(t stores.TB, engine string) (addr string, flags []string) {
	t.Helper()
	if engine == "embedded" {
		return "", []string{"--engine", engine}
	}
	s := OpenShared(t, engine)
	return s.Store.Addr, s.Flags(s.Store.Addr)
}

// Shared is a store that several servers can share.
type Shared struct {
	Engine string
	Store  *stores.Server
}

// OpenShared starts a store for an engine.
func OpenShared(t stores.TB, engine string) *Shared {
	t.Helper()
	s := &Shared{Engine: engine}
	switch engine {
	case "redis":
		s.Store = stores.Redis(t)
	case "mysql":
		s.Store = stores.MariaDB(t)
	case "zookeeper":
		s.Store = stores.ZooKeeper(t)
	default:
		t.Fatalf("engine %q has no store", engine)
	}
	return s
}

// Flags returns the flags of a server that finds the store at an address: its own, or that of a
// link to it. On a busy machine a store may be slow. So the server waits for it longer than by
// default, and keeps its session longer.
func (s *Shared) Flags(addr string) []string {
	flags := []string{"--engine", s.Engine, "--backend-timeout", "10s"}
	switch s.Engine {
	case "redis":
		flags = append(flags, "--redis-url", "redis://"+addr)
	case "mysql":
		flags = append(flags, "--mysql-dsn", "root@tcp("+addr+")/simba", "--mysql-migrate", "--mysql-poll", "50ms")
	case "zookeeper":
		flags = append(flags, "--zookeeper-servers", addr, "--zookeeper-session-timeout", "30s")
	}
	return flags
}

// Start starts one more server on the store.
func (s *Shared) Start(t testing.TB, flags ...string) *Server {
	t.Helper()
	return Start(t, append(s.Flags(s.Store.Addr), flags...)...)
}

// OnEveryStore runs a test on each engine that has a store. Each subtest has a store of its own.
// They run in parallel, since they mostly wait.
func OnEveryStore(t *testing.T, test func(*testing.T, *Shared)) {
	for _, engine := range StoreEngines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, OpenShared(t, engine))
		})
	}
}
