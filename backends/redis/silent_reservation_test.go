package redis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// A server reserves the mutex for a contender that gets no notices, and crashes. The owner has
// renewed since that contender saw its lease. So the waiter's server does not reconcile the mutex
// when that lease would have ended, and the test cancels the regular reconciliation.
func TestReservationByACrashedServerEndsInTime(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())
	c := clientOf(t, s.Addr)
	must(t, c.ScriptLoad(t.Context(), releaseScript.text).Err())
	for n := 0; ; n++ {
		mutex := fmt.Sprint("m", n)
		deaf := newSimbaContender(t, s.Addr, seeds.Simba31, mutex, "deaf")
		acquire(t, b, mutex, "a", 1500*time.Millisecond, nil)
		if owner, _ := deaf.acquire(time.Minute); owner == "deaf" {
			continue // the lease of a has ended on a busy machine
		}
		acquire(t, b, mutex, "a", time.Minute, nil)
		w := newWaiter()
		_, ticket := acquire(t, b, mutex, "w", time.Minute, w)
		awaitIdle(t, b, mutex, "w")
		b.schedule.cancel(mutex, neverPutOff)

		header := b.header(false)
		header[0], header[4] = "crashed", noDeadline
		reply, err := c.Do(context.Background(), releaseScript.command(mutex, header, "a", "0", "", "")...).Slice()
		must(t, err)
		granted(t, w, ticket)
		if keptUntil := reply[5].(int64); keptUntil != 0 {
			return
		} // else the contender was due before the release, on a busy machine
	}
}
