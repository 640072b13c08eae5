package tests

import (
	"regexp"
	"testing"
	"time"

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

// at are the flags of a server that finds the store at an address: its own, or that of a link to it. A store
// on a busy machine may be slow: the server waits for it, and keeps its session, for longer than by default.
func (s *shared) at(addr string) []string {
	args := []string{"--engine", s.engine, "--backend-timeout", "10s"}
	switch s.engine {
	case "redis":
		args = append(args, "--redis-url", "redis://"+addr)
	case "mysql":
		args = append(args, "--mysql-dsn", "root@tcp("+addr+")/simba", "--mysql-migrate", "--mysql-poll", "50ms")
	case "zookeeper":
		args = append(args, "--zookeeper-servers", addr, "--zookeeper-session-timeout", "30s")
	}
	return args
}

// serve runs one more server on the store.
func (s *shared) serve(t testing.TB, flags ...string) *server {
	t.Helper()
	return start(t, append(s.args[:len(s.args):len(s.args)], flags...)...)
}

// serveBriefly runs a server that finds the store at an address, and waits for it no longer than that. It is
// started again when the store does not answer it in time as it starts.
func (s *shared) serveBriefly(t testing.TB, addr string, timeout time.Duration) *server {
	t.Helper()
	args := append([]string{"--addr", "127.0.0.1:0", "--data-dir", t.TempDir() + "/data"}, s.at(addr)...)
	args = append(args, "--backend-timeout", timeout.String())
	if s.engine == "zookeeper" {
		args = append(args, "--zookeeper-session-timeout", "4s")
	}
	ready := regexp.MustCompile(readyLine)
	for end := time.Now().Add(patience); ; {
		s := &server{process: launch(t, args...)}
		found := s.out.next(ready)
		select {
		case match := <-found:
			s.addr = match[1]
			return s
		case <-s.exited:
		}
		if time.Now().After(end) {
			t.Fatalf("%v does not serve:\n%s", s.cmd, s.out.String())
		}
	}
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
