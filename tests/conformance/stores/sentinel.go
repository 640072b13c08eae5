package stores

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/simba-resp/simba-resp/tests/need"
)

// Sentinel is a Redis primary with one replica and three sentinels. The sentinels fail over if two
// of them agree that the primary has been silent for a second.
type Sentinel struct {
	MasterName    string
	SentinelAddrs []string
	Nodes         []*Server // the initial primary, then its replica
	Sentinels     []*Server
}

// RedisSentinel starts a Sentinel, and returns when every sentinel could fail over. The arguments
// are for the redis-server of both nodes.
func RedisSentinel(t TB, args ...string) *Sentinel {
	t.Helper()
	s := &Sentinel{MasterName: "mymaster"}
	args = append([]string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}, args...)
	primary := Redis(t, args...)
	host, port, _ := strings.Cut(primary.Addr, ":")
	replica := Redis(t, append(args, "--replicaof", host, port)...)
	s.Nodes = []*Server{primary, replica}
	need.Await(t, "the replica follows", func() bool { return replyContains(replica.Addr, "INFO replication", "master_link_status:up") })
	for range 3 {
		w := s.watcher(t, host, port)
		s.Sentinels = append(s.Sentinels, start(t, w))
		s.SentinelAddrs = append(s.SentinelAddrs, w.Addr)
		// If a busy machine delays a sentinel by 2 s, the sentinel does nothing for 30 s. This
		// command shortens that time to 3 s. Redis before 7 lacks the command.
		_, _ = ask(w.Addr, "SENTINEL DEBUG tilt-period 3000")
	}
	need.Await(t, "the sentinels know each other and the replica", func() bool {
		for _, addr := range s.SentinelAddrs {
			if !replyContains(addr, "SENTINEL CKQUORUM "+s.MasterName, "OK 3 usable") || !replyContains(addr, "INFO sentinel", "status=ok,", "slaves=1,") {
				return false
			}
		}
		return true
	})
	return s
}

// Primary returns the node that reports itself as the primary, or nil.
func (s *Sentinel) Primary() *Server {
	for _, n := range s.Nodes {
		if replyContains(n.Addr, "INFO replication", "role:master") {
			return n
		}
	}
	return nil
}

// Hold keeps the sentinels from replacing the current primary, also if a busy machine delays the
// primary for more than a second.
func (s *Sentinel) Hold(t TB) {
	t.Helper()
	for _, addr := range s.SentinelAddrs {
		mustAsk(t, addr, "SENTINEL SET "+s.MasterName+" down-after-milliseconds 600000")
	}
}

func (s *Sentinel) watcher(t TB, host, port string) *Server {
	t.Helper()
	own := FreePort(t)
	w := &Server{Addr: local(own), Dir: Scratch(t), program: need.Program(t, "redis-server", "redis-server")}
	conf := fmt.Sprintf(`port %d
bind 127.0.0.1
dir %s
sentinel monitor %[3]s %[4]s %[5]s 2
sentinel down-after-milliseconds %[3]s 1000
sentinel failover-timeout %[3]s 5000
`, own, w.Dir, s.MasterName, host, port)
	// Sentinels rewrite their configuration file, so each needs its own.
	if err := os.WriteFile(filepath.Join(w.Dir, "sentinel.conf"), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	w.args = []string{"sentinel.conf", "--sentinel"}
	w.ready = func() error { return answers(w.Addr, "PING\r\n", "+PONG", "-NOAUTH") }
	return w
}
