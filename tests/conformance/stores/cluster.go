package stores

import (
	"fmt"
	"strings"

	"github.com/simba-resp/simba-resp/tests/need"
)

const slots = 16384

// Cluster is a Redis Cluster of three masters, each with one replica. The nodes notice a dead node
// after about a second.
type Cluster struct {
	Nodes []*Server // the initial masters, then their replicas in the same order
	Addrs []string  // of Nodes
}

// RedisCluster starts a cluster. It returns when each node reports the cluster as complete and each
// replica follows its master. The arguments are for redis-server.
func RedisCluster(t TB, args ...string) *Cluster {
	t.Helper()
	const masters = 3
	c := &Cluster{}
	for range 2 * masters {
		s := Redis(t, append([]string{
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
			"--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0",
			"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
		}, args...)...)
		c.Nodes = append(c.Nodes, s)
		c.Addrs = append(c.Addrs, s.Addr)
	}
	for i, s := range c.Nodes {
		mustAsk(t, s.Addr, fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", i+1))
		if i < masters {
			mustAsk(t, s.Addr, fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", i*slots/masters, (i+1)*slots/masters-1))
		}
	}
	for _, s := range c.Nodes[1:] {
		host, port, _ := strings.Cut(s.Addr, ":")
		mustAsk(t, c.Addrs[0], "CLUSTER MEET "+host+" "+port)
	}
	for i, s := range c.Nodes[masters:] {
		id := mustAsk(t, c.Addrs[i], "CLUSTER MYID")
		need.Await(t, "a replica knows its master", func() bool { return replyContains(s.Addr, "CLUSTER REPLICATE "+id, "OK") })
	}
	need.Await(t, "every node finds the cluster in order", func() bool {
		for i, s := range c.Nodes {
			if !replyContains(s.Addr, "CLUSTER INFO", "cluster_state:ok", "cluster_known_nodes:6", "cluster_slots_ok:16384") {
				return false
			}
			// Clients may ask any node for the replicas.
			if reply, err := ask(s.Addr, "CLUSTER NODES"); err != nil || strings.Count(reply, "slave") != masters {
				return false
			}
			if i >= masters && !replyContains(s.Addr, "INFO replication", "master_link_status:up") {
				return false
			}
		}
		return true
	})
	return c
}

// Master returns the node that serves a key's slot now, or nil.
func (c *Cluster) Master(key string) *Server {
	for _, s := range c.Nodes {
		// Only the slot's master answers. The other nodes return MOVED.
		if _, err := ask(s.Addr, "EXISTS "+key); err == nil {
			return s
		}
	}
	return nil
}
