package chaos

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// world is an engine that runs: its servers, its store, and the links between all of them.
type world struct {
	engine  string // and its variant: a key of documented
	rules   guarantees
	servers []host
	single  *stores.Server // the store; nil = the engine needs none, or has a pair
	pair    stores.Pair    // the store, of an engine whose store fails over; else nil
	links   []*stores.Link // from each server to the store
	doors   []*door        // from the clients to the servers
	reading *door          // to a server that gets reads only, as one beside a resource; nil = there is none
	killed  instant        // a server was killed last, and gone, then
}

// host is a server, the same through all its restarts.
type host struct {
	program
	addr string // host:port
}

// program is what faults do to a server, and what it logs.
type program interface {
	Start()
	Kill()
	Pause()
	Resume()
	Log() string
}

// door is a way for clients to a server.
type door struct {
	*stores.Link
	server int
	good   latest // when the last request was sent that was answered here
}

// open starts an engine: two servers with a store between them, or one that needs none. Clients have two
// doors in either case, so that a fault of the network leaves one of them. A store that fails over has a
// third server, which gets reads only: no refused write tells it that the store is another one.
func open(t *testing.T, engine string) *world {
	t.Helper()
	w := &world{engine: engine, rules: documented[engine]}
	name, variant, _ := strings.Cut(engine, " ")
	servers := 2
	var args func(link string) []string
	switch name {
	case "embedded":
		servers = 1
		flags := []string{"--data-dir", memory(t)}
		if variant != "" {
			flags = append(flags, "--durability", variant)
		}
		args = func(string) []string { return flags }
	case "redis":
		w.pair = stores.NewRedisPair(t, "--appendfsync", "always")
		args = func(link string) []string { return []string{"--redis-url", "redis://" + link} }
	case "mysql":
		pair := stores.NewMariaDBPair(t, "--innodb-flush-log-at-trx-commit=1")
		w.pair = pair
		args = func(link string) []string {
			return []string{"--mysql-dsn", pair.DSN(link), "--mysql-migrate", "--mysql-poll", "50ms"}
		}
	case "zookeeper":
		w.single = stores.ZooKeeper(t, "forceSync=yes")
		args = func(link string) []string {
			return []string{"--zookeeper-servers", link, "--zookeeper-session-timeout", sessionTimeout.String(),
				"--backend-timeout", "10s"} // for its start, beside a ZooKeeper that has just begun
		}
	}
	if w.pair != nil {
		servers++
	}
	for i := range servers {
		link := ""
		if addr := w.storeAddr(); addr != "" {
			w.links = append(w.links, stores.NewLink(t, addr))
			link = w.links[i].Addr()
		}
		s := simbatest.Start(t, append([]string{"--engine", name}, args(link)...)...)
		w.servers = append(w.servers, host{s, s.Addr})
	}
	w.hang(t)
	return w
}

// store is the server that the engine's requests reach, nil if it needs none.
func (w *world) store() *stores.Server {
	if w.pair != nil {
		return w.pair.Primary()
	}
	return w.single
}

// storeAddr is where servers reach the store, "" if the engine needs none.
func (w *world) storeAddr() string {
	switch {
	case w.pair != nil:
		return w.pair.Link().Addr()
	case w.single != nil:
		return w.single.Addr
	}
	return ""
}

// hang gives clients two doors, to two servers or to the only one, and readers theirs.
func (w *world) hang(t *testing.T) {
	t.Helper()
	to := func(server int) *door {
		return &door{Link: stores.NewLink(t, w.servers[server].addr), server: server}
	}
	for i := range 2 {
		w.doors = append(w.doors, to(i%len(w.servers)))
	}
	if w.pair != nil {
		w.reading = to(2)
	}
}

// names makes names for mutexes that nobody has used.
func (w *world) names(window, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("w%d-m%d", window, i))
	}
	return names
}

// memory is a folder that needs no disk, which others may keep busy: what kill -9 leaves is there too.
func memory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "simba-chaos-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
