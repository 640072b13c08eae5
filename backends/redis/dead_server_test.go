package redis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// If a server loses power, Redis counts it as a subscriber until Redis finds its connection broken.
func TestWaitersOfDeadServerAreRemovedTogether(t *testing.T) {
	s := stores.Redis(t)
	one := serve(t, "redis://"+s.Addr, newListener())
	c := clientOf(t, s.Addr)
	dead := c.Subscribe(t.Context(), "simba-server:dead")
	defer dead.Close()
	if _, err := dead.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	acquire(t, one, "m", "a", time.Minute, nil)
	for i := range 3 {
		header := one.header(false)
		header[0], header[4] = "dead", noDeadline
		err := c.Do(context.Background(), acquireScript.command("m", header, fmt.Sprint("w", i), 60000, 0, "wait", "", i+1)...).Err()
		must(t, err)
	}
	w, ticket := waits(t, one, "m", "b")
	release(t, one, "m", "a")
	granted(t, w, ticket)
	events, _, err := one.History(t.Context(), simba.HistoryRequest{Mutex: "m", Count: 100})
	must(t, err)
	tenures, left := 0, 0
	for _, e := range events {
		switch {
		case e.Kind == simba.EventAcquired:
			tenures++
		case e.Kind == simba.EventLeft && e.Reason == "server gone":
			left++
		}
	}
	if tenures != 3 || left != 2 { // the tenures are of a, w0 and b
		t.Errorf("HISTORY has %d tenures and %d ends of waits, want 3 and 2: %v", tenures, left, events)
	}
}

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
		w, ticket := waits(t, b, mutex, "w")
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
