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
	return Start(t, append(engineArgs(t, engine), args...)...)
}

func engineArgs(t stores.TB, engine string) []string {
	t.Helper()
	args := []string{"--engine", engine}
	switch engine {
	case "embedded":
	case "redis":
		args = append(args, "--redis-url", "redis://"+stores.Redis(t).Addr)
	case "mysql":
		args = append(args, "--mysql-dsn", "root@tcp("+stores.MariaDB(t).Addr+")/simba", "--mysql-migrate", "--mysql-poll", "50ms")
	case "zookeeper":
		args = append(args, "--zookeeper-servers", stores.ZooKeeper(t).Addr, "--zookeeper-session-timeout", "4s")
	default:
		t.Fatalf("there is no engine %s", engine)
	}
	return args
}
