package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// At the stuck node, each reconciliation takes the whole timeout of a request. Far more
// reconciliations are due than may run at a time. Mutexes of other nodes must not wait for them.
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
		b.schedule.bringForward(time.Now(), m)
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
		// A grant that waits for the reconciliations would take five timeouts.
		if took := time.Since(start); took > need.AtMost(3*b.timeout) {
			t.Errorf("the waiter for %s was granted it after %v, want less than three timeouts", m, took)
		}
	}
}
