package stores

import (
	"strconv"
	"strings"
	"sync"

	"github.com/simba-resp/simba-resp/tests/need"
)

// RedisPair is a Pair of two Redis servers. The replica follows asynchronously. Failover and Rejoin
// must not overlap.
type RedisPair struct {
	t    TB
	link *Link

	mu               sync.Mutex // guards the fields below; never held during I/O
	primary, replica *Server
}

// NewRedisPair starts both servers and returns when the replica follows. A restarted primary is the
// primary again, and the replica follows it. The arguments are for the redis-server of both.
func NewRedisPair(t TB, args ...string) *RedisPair {
	t.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}, args...)
	// The replica gets no argument for its role: after a failover it must restart as the primary.
	p := &RedisPair{t: t, primary: Redis(t, args...), replica: Redis(t, args...)}
	p.Rejoin()
	p.link = NewLink(t, p.primary.Addr)
	return p
}

var _ Pair = (*RedisPair)(nil)

// Link implements Pair.
func (p *RedisPair) Link() *Link { return p.link }

// Primary implements Pair.
func (p *RedisPair) Primary() *Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.primary
}

// Other implements Pair.
func (p *RedisPair) Other() *Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replica
}

// Failover implements Pair. It demotes the old primary before it promotes the replica, so that at
// most one server takes writes.
func (p *RedisPair) Failover() {
	p.t.Helper()
	old, next := p.Primary(), p.Other()
	// Writes and scripts wait until the old primary is demoted. Then they fail.
	mustAsk(p.t, old.Addr, "CLIENT PAUSE 60000 WRITE")
	p.awaitSync()
	mustAsk(p.t, old.Addr, "REPLICAOF 127.0.0.1 1") // a port without a listener
	mustAsk(p.t, old.Addr, "CLIENT UNPAUSE")
	mustAsk(p.t, next.Addr, "REPLICAOF NO ONE")
	p.link.Retarget(next.Addr)
	p.mu.Lock()
	p.primary, p.replica = next, old
	p.mu.Unlock()
}

// Rejoin implements Pair.
func (p *RedisPair) Rejoin() {
	p.t.Helper()
	host, port, _ := strings.Cut(p.Primary().Addr, ":")
	mustAsk(p.t, p.Other().Addr, "REPLICAOF "+host+" "+port)
	p.awaitSync()
}

// awaitSync waits until the replica has all writes that the primary had at the time of the call.
func (p *RedisPair) awaitSync() {
	p.t.Helper()
	wanted := offset(p.t, p.Primary().Addr)
	need.Await(p.t, "the replica has caught up", func() bool {
		addr := p.Other().Addr
		return replyContains(addr, "INFO replication", "master_link_status:up", "master_sync_in_progress:0") &&
			offset(p.t, addr) >= wanted
	})
}

func offset(t TB, addr string) int64 {
	t.Helper()
	_, rest, _ := strings.Cut(mustAsk(t, addr, "INFO replication"), "master_repl_offset:")
	text, _, _ := strings.Cut(rest, "\r")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("the replication offset of %s: %v", addr, err)
	}
	return n
}
