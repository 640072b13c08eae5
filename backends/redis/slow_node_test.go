package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// A stuck node affects no mutex of other nodes. At the stuck node, each reconciliation takes the
// whole timeout of a request. Far more of them are due than run at a time.
func TestStuckNodeDelaysNoGrantAtOtherNodes(t *testing.T) {
	c := stores.RedisCluster(t, "--cluster-node-timeout", "60000") // no failover in the test
	url := "redis+cluster://" + strings.Join(c.Addrs, ",")
	b, other := serve(t, url, noNotices{}), serve(t, url, noNotices{})
	bad := c.Nodes[0]
	var there, elsewhere []string
	for i := 0; len(there) < 6*maxBackground || len(elsewhere) < 10; i++ {
		m := fmt.Sprint("m", i)
		if c.Master("simba:{"+m+"}") == bad {
			there = append(there, m)
		} else if len(elsewhere) < 10 {
			elsewhere = append(elsewhere, m)
		}
	}
	waiters := make(map[string]*waiter)
	for _, m := range append(there, elsewhere...) {
		acquire(t, other, m, "a", time.Minute, nil)
		waiters[m] = newWaiter()
		acquire(t, b, m, "w", time.Minute, waiters[m])
	}
	bad.Pause()
	defer bad.Resume()
	for _, m := range there {
		b.schedule.bringForward(m, time.Now()) // as within reconcileInterval
	}
	until(t, "reconciliations at the node pile up", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.reconciling) > 5*maxBackground
	})
	for _, m := range elsewhere {
		start := time.Now()
		release(t, other, m, "a")
		waiters[m].await(t)
		// Behind the reconciliations the grant would take five timeouts. A busy machine may need
		// some of them.
		if took := time.Since(start); took > 3*b.timeout {
			t.Errorf("the waiter for %s was granted it after %v", m, took)
		}
	}
}
