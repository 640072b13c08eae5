package chaos

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
	"github.com/simba-resp/simba-resp/tests/tenures"
)

// world is a running engine: its servers, its store, and the links between all of them.
type world struct {
	t       *testing.T
	engine  string // an engine and perhaps its variant: a key of documented
	rules   guarantees
	servers []host
	cluster *cluster       // nil = another engine
	single  *stores.Server // the store; nil = there is no store, or it is a pair
	pair    stores.Pair    // the store, if it has failover; else nil
	links   []*stores.Link // from each server to the store
	routes  []*route       // from the clients to the servers
	reading *route         // to the third server, for clients that only read; nil = there is none
	killed  instant        // when the process of a server was last killed
}

// host is a server. It stays the same host through all restarts of the process.
type host struct {
	program
	addr string // host:port
}

// program is a server's process: what faults do to it, and its log.
type program interface {
	Start()
	Kill()
	Pause()
	Resume()
	Log() string
}

type route struct {
	*stores.Link
	server int
	good   latest // when clients sent the last request that got a reply
}

// open starts an engine: two servers that share a store, one server of an engine without a store, or
// three members of a cluster. Clients always have two routes, so a network fault leaves one of them. A store with
// failover gets a third server, to which clients send only reads. The other servers learn of a new
// primary when the old one refuses a write, but the third server does not.
func open(t *testing.T, engine string) *world {
	t.Helper()
	w := &world{t: t, engine: engine, rules: documented[engine]}
	name, variant, _ := strings.Cut(engine, " ")
	if name == "cluster" {
		w.cluster = openCluster(t)
		for _, s := range w.cluster.servers {
			w.servers = append(w.servers, host{member{s, t}, s.Addr})
		}
		w.openRoutes(t)
		return w
	}
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
	case "postgres":
		w.pair = stores.NewPostgresPair(t)
		args = func(link string) []string {
			return []string{"--postgres-url", stores.PostgresURL(link), "--postgres-migrate"}
		}
	case "zookeeper":
		w.single = stores.ZooKeeper(t, "forceSync=yes")
		args = func(link string) []string {
			return []string{"--zookeeper-servers", link, "--zookeeper-session-timeout", sessionTimeout.String(),
				"--backend-timeout", "10s"} // at a test's start, ZooKeeper may still be starting
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
	w.openRoutes(t)
	return w
}

// store returns the store, or the primary of a pair. It returns nil for an engine without a store.
func (w *world) store() *stores.Server {
	if w.pair != nil {
		return w.pair.Primary()
	}
	return w.single
}

func (w *world) storeAddr() string {
	switch {
	case w.pair != nil:
		return w.pair.Link().Addr()
	case w.single != nil:
		return w.single.Addr
	}
	return ""
}

func (w *world) openRoutes(t *testing.T) {
	t.Helper()
	to := func(server int) *route {
		return &route{Link: stores.NewLink(t, w.servers[server].addr), server: server}
	}
	for i := range max(2, len(w.servers)) {
		if w.pair != nil && i == 2 {
			w.reading = to(i)
			break
		}
		w.routes = append(w.routes, to(i%len(w.servers)))
	}
}

func (w *world) names(window, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("w%d-m%d", window, i))
	}
	return names
}

// memory returns a folder in memory, because other processes may keep the disk busy. Its files
// survive kill -9.
func memory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "simba-chaos-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (w *world) serverHistory(t *testing.T, server int, mutex string) []tenures.Event {
	t.Helper()
	var events []tenures.Event
	ask := func() error {
		conn, err := redis.Dial("tcp", w.servers[server].addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		events, err = tenures.Events(conn.Do("SIMBA.HISTORY", mutex, "COUNT", 10_000))
		return err
	}
	err := ask()
	for end := time.Now().Add(patience); w.cluster != nil && err != nil && time.Now().Before(end); err = ask() {
		time.Sleep(100 * time.Millisecond) // the cluster elects a leader
	}
	simbatest.Must(t, err)
	return events
}
