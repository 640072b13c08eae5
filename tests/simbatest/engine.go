package simbatest

import (
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// Engines are the engines of the server.
var Engines = []string{"embedded", "redis", "mysql", "zookeeper"}

// StartOn returns a server of that engine, with a store of its own if the engine needs one. Where
// the store is not installed the test is skipped, and fails with CI=true.
func StartOn(t stores.TB, engine string, args ...string) *Server {
	t.Helper()
	_, flags := Store(t, engine)
	return Start(t, append(flags, args...)...)
}

// Store starts the store of an engine. It returns the store's address, "" if the engine has none, and the
// flags of servers that use it. On a busy machine a store may be slow: a server waits for it, and keeps its
// session, for longer than by default.
func Store(t stores.TB, engine string) (addr string, flags []string) {
	t.Helper()
	flags = []string{"--engine", engine}
	if engine != "embedded" {
		flags = append(flags, "--backend-timeout", "10s")
	}
	switch engine {
	case "embedded":
	case "redis":
		addr = stores.Redis(t).Addr
		flags = append(flags, "--redis-url", "redis://"+addr)
	case "mysql":
		addr = stores.MariaDB(t).Addr
		flags = append(flags, "--mysql-dsn", "root@tcp("+addr+")/simba", "--mysql-migrate", "--mysql-poll", "50ms")
	case "zookeeper":
		addr = stores.ZooKeeper(t).Addr
		flags = append(flags, "--zookeeper-servers", addr, "--zookeeper-session-timeout", "30s")
	default:
		t.Fatalf("there is no engine %s", engine)
	}
	return addr, flags
}
