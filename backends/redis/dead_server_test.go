package redis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
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
	w := newWaiter()
	_, ticket := acquire(t, one, "m", "b", time.Minute, w)
	release(t, one, "m", "a")
	w.await(t)
	if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusAcquired {
		t.Errorf("the waiter b: %+v %v; want acquired", o, err)
	}
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
