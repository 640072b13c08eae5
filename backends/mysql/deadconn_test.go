package mysql

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// deadConns dials connections to a database. One of them stops working without an error.
type deadConns struct {
	armed atomic.Bool // if true, the next GUARD kills its connection
	died  chan struct{}
}

// newDeadConns returns a deadConns, and the network that a DSN must name to use it. No other test
// uses that network.
func newDeadConns(t *testing.T) (d *deadConns, network string) {
	d = &deadConns{died: make(chan struct{})}
	network = "tcp4"
	mysqldriver.RegisterDialContext(network, func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		return &deadConn{Conn: c, deaths: d}, err
	})
	t.Cleanup(func() { mysqldriver.DeregisterDialContext(network) })
	return d, network
}

// deadConn is a connection that can die: it then accepts writes and delivers no reply.
type deadConn struct {
	net.Conn
	deaths *deadConns
	dead   atomic.Bool
}

func (c *deadConn) Write(b []byte) (int, error) {
	// Statements of GUARD and of handoffs match (see statements), and the test has no handoff.
	guard := bytes.Contains(b, []byte("LAST_INSERT_ID(")) && !bytes.Contains(b, []byte("DIV 2"))
	if guard && c.deaths.armed.CompareAndSwap(true, false) {
		c.dead.Store(true)
		close(c.deaths.died)
	}
	if c.dead.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// The owner's next GUARD renews in time.
func TestGuardOnADeadConnectionDelaysNoOther(t *testing.T) {
	const timeout = 8 * time.Second
	store := stores.MariaDB(t)
	for name, c := range map[string]struct {
		stuck  string // the contender whose GUARD is on the dead connection
		always bool   // the server has no lock wait of 0, like MySQL
		within time.Duration
	}{
		"the owner's earlier GUARD":             {"a", false, longestLockWait / 2},
		"a GUARD of another":                    {"b", false, longestLockWait / 2},
		"the owner's earlier GUARD, like MySQL": {"a", true, timeout / 2},
		"a GUARD of another, like MySQL":        {"b", true, timeout / 2},
	} {
		t.Run(name, func(t *testing.T) {
			var o simba.Outcome
			var took time.Duration
			var err error
			for try := range 8 { // a busy machine may delay some attempts, but hardly eight
				o, took, err = guardBesideADeadConnection(t, store, fmt.Sprint(name, try), c.stuck, c.always, timeout)
				if err == nil && took <= need.AtMost(c.within) {
					break
				}
			}
			if err != nil || o.Status != simba.StatusRenewed || took > need.AtMost(c.within) {
				t.Errorf("the owner's next GUARD: %v, %v, after %v; want renewed within %v", o.Status, err, took, c.within)
			}
		})
	}
}

// guardBesideADeadConnection sends a GUARD of the owner, contender a, while a GUARD of the
// contender stuck is on a dead connection. always is lockWaits.alwaysWaits.
func guardBesideADeadConnection(t *testing.T, store *stores.Server, mutex, stuck string, always bool, timeout time.Duration) (o simba.Outcome, took time.Duration, err error) {
	t.Helper()
	d, network := newDeadConns(t)
	b := serve(t, "", func(o *Options) {
		o.DSN, o.Timeout, o.Poll = "root@"+network+"("+store.Addr+")/simba", timeout, 0
	})
	b.store.waits.alwaysWaits = always
	take(t, b, mutex, "a", long)
	guard := func(ctx context.Context, contender string) (simba.Outcome, error) {
		return b.Guard(ctx, simba.GuardRequest{Mutex: mutex, Contender: contender, TTL: long})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	d.armed.Store(true)
	all.Go(func() { _, _ = guard(ctx, stuck) })
	select {
	case <-d.died:
	case <-time.After(need.Hang):
		t.Fatal("no GUARD was sent on the connection that is to die")
	}
	start := time.Now()
	o, err = guard(t.Context(), "a")
	return o, time.Since(start), err
}
