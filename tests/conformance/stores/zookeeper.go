package stores

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/simba-resp/simba-resp/tests/need"
)

// zookeeperJar is the path of ZooKeeper. The manifest of this jar names the other jars that it
// needs.
const zookeeperJar = "/usr/share/java/zookeeper.jar"

// ZooKeeper starts a single ZooKeeper without fsync. Sessions may be as short as 1 s, and the tick
// is 200 ms. The server deletes empty container nodes after a second or two. The arguments are
// lines of zoo.cfg, and override the defaults.
func ZooKeeper(t TB, config ...string) *Server {
	t.Helper()
	s := zookeeper(t, testOptions...)
	configure(t, s, 1, config...)
	return start(t, s)
}

// SyncingZooKeeper is a ZooKeeper with fsync, and a JVM with at most 1 GB of heap, for benchmarks.
func SyncingZooKeeper(t TB, config ...string) *Server {
	t.Helper()
	s := zookeeper(t, syncingOptions...)
	configure(t, s, 1, config...)
	return start(t, s)
}

// Ensemble is a ZooKeeper of several servers.
type Ensemble struct {
	Servers []*Server
}

// ZooKeeperEnsemble starts n ZooKeepers that elect a leader. It returns when each server answers.
func ZooKeeperEnsemble(t TB, n int, config ...string) *Ensemble {
	t.Helper()
	return ensemble(t, n, testOptions, config)
}

// SyncingEnsemble is a ZooKeeperEnsemble of servers like SyncingZooKeeper.
func SyncingEnsemble(t TB, n int, config ...string) *Ensemble {
	t.Helper()
	return ensemble(t, n, syncingOptions, config)
}

func ensemble(t TB, n int, options, config []string) *Ensemble {
	t.Helper()
	e := &Ensemble{}
	var peers []string
	for i := range n {
		e.Servers = append(e.Servers, zookeeper(t, options...))
		peers = append(peers, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", i+1, FreePort(t), FreePort(t)))
	}
	for i, s := range e.Servers {
		configure(t, s, i+1, append(peers, config...)...)
	}
	startAll(t, e.Servers)
	return e
}

// Connect returns the connect string: the addresses, separated by commas.
func (e *Ensemble) Connect() string {
	var addrs []string
	for _, s := range e.Servers {
		addrs = append(addrs, s.Addr)
	}
	return strings.Join(addrs, ",")
}

// Leader returns the current leader, or nil.
func (e *Ensemble) Leader() *Server {
	for _, s := range e.Servers {
		if answers(s.Addr, "srvr", "Mode: leader") == nil {
			return s
		}
	}
	return nil
}

// testOptions are JVM options for little memory and no fsync.
var testOptions = []string{"-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no"}

var syncingOptions = []string{"-Xmx1g"}

func zookeeper(t TB, options ...string) *Server {
	t.Helper()
	java := need.Program(t, "java", "default-jre-headless")
	need.File(t, zookeeperJar, "zookeeper")
	s := &Server{Addr: local(FreePort(t)), Dir: Scratch(t), program: java}
	s.args = append(options[:len(options):len(options)],
		"-Dzookeeper.preAllocSize=64",
		"-Dznode.container.checkIntervalMs=1000",
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-cp", zookeeperJar+":/usr/share/java/slf4j-simple.jar",
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg")
	s.ready = func() error {
		return answers(s.Addr, "srvr", "Mode: standalone", "Mode: leader", "Mode: follower")
	}
	return s
}

func configure(t TB, s *Server, id int, config ...string) {
	t.Helper()
	host, port, _ := strings.Cut(s.Addr, ":")
	text := strings.Join(append([]string{
		"dataDir=" + s.Dir, "clientPortAddress=" + host, "clientPort=" + port,
		"tickTime=200", "initLimit=100", "syncLimit=25",
		"minSessionTimeout=1000", "maxSessionTimeout=3600000", "maxClientCnxns=0",
		"admin.enableServer=false", "4lw.commands.whitelist=*",
	}, config...), "\n") + "\n"
	for name, text := range map[string]string{"zoo.cfg": text, "myid": strconv.Itoa(id) + "\n"} {
		if err := os.WriteFile(filepath.Join(s.Dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
