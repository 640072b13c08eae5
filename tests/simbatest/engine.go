package simbatest

import (
	"testing"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

var Engines = []string{"embedded", "redis", "mysql", "postgres", "zookeeper"}

// StoreEngines are the engines that need a store.
var StoreEngines = Engines[1:]

// StartOn starts a server with an engine, and the store that the engine needs. If the store is not
// installed, StartOn skips the test, or fails it with CI=true.
func StartOn(t stores.TB, engine string, args ...string) *Server {
	t.Helper()
	_, flags := Store(t, engine)
	return Start(t, append(flags, args...)...)
}

// Store starts the store of an engine. It returns the address of the store, and the flags for
// servers that use it. For the engine embedded, the address is "".
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
	case "postgres":
		s.Store = stores.Postgres(t)
	case "zookeeper":
		s.Store = stores.ZooKeeper(t)
	default:
		t.Fatalf("engine %q has no store", engine)
	}
	return s
}

// Flags returns the flags of a server that reaches the store at addr, perhaps by a link. A busy
// machine makes stores slow, so the timeouts are longer than the defaults.
func (s *Shared) Flags(addr string) []string {
	flags := []string{"--engine", s.Engine, "--backend-timeout", "10s"}
	switch s.Engine {
	case "redis":
		flags = append(flags, "--redis-url", "redis://"+addr)
	case "mysql":
		flags = append(flags, "--mysql-dsn", "root@tcp("+addr+")/simba", "--mysql-migrate", "--mysql-poll", "50ms")
	case "postgres":
		flags = append(flags, "--postgres-url", stores.PostgresURL(addr), "--postgres-migrate")
	case "zookeeper":
		flags = append(flags, "--zookeeper-servers", addr, "--zookeeper-session-timeout", "1h")
	}
	return flags
}

// Start starts another server that uses the store.
func (s *Shared) Start(t testing.TB, flags ...string) *Server {
	t.Helper()
	return Start(t, append(s.Flags(s.Store.Addr), flags...)...)
}

// OnEveryStore runs a test with each engine that needs a store. The subtests run in parallel, each
// with its own store.
func OnEveryStore(t *testing.T, test func(*testing.T, *Shared)) {
	for _, engine := range StoreEngines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, OpenShared(t, engine))
		})
	}
}

// OnEveryEngine runs a test with each engine. The subtests run in parallel.
func OnEveryEngine(t *testing.T, test func(t *testing.T, engine string)) {
	Binary(t) // must run in the goroutine of the test
	for _, engine := range Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, engine)
		})
	}
}
