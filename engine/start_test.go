package engine_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/engine"
)

// A server of a cluster starts its engine for each term in which it leads.
func TestAnEngineStartsAgainWithItsSettingsAndWithoutItsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := engine.New(engine.Config{Clock: engine.NewClock(0)}, engine.Memory(), engine.Recovery{})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Stop()
		acquire := func(mutex, contender string) (simba.Outcome, error) {
			o, _, err := e.Acquire(t.Context(), simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: time.Minute})
			return o, errors.Join(err, e.Commit(o.Seq))
		}
		for _, name := range []string{"a", "b"} { // the second one waits
			if _, err := acquire("m", name); err != nil {
				t.Fatal(err)
			}
		}
		e.SetQueueGrace(time.Minute)
		e.LimitQueues(1)
		e.Stop()
		_, updated := e.UpdateOne("m", func(simba.Tx) error { return nil })
		if _, err := acquire("m", "x"); !errors.Is(err, simba.ErrStopped) || !errors.Is(updated, simba.ErrStopped) {
			t.Errorf("of an engine that has stopped, Acquire returned %v and UpdateOne %v, want ErrStopped", err, updated)
		}

		leases := func(yield func(simba.Lease, error) bool) {
			yield(simba.Lease{Mutex: "m", Owner: "o", TTL: time.Minute, Token: 7}, nil)
		}
		if err := e.Start(engine.NewClock(0), engine.Memory(), engine.Recovery{Token: 7, Seq: 10, Leases: leases}); err != nil {
			t.Fatal(err)
		}
		if s := e.Stats(); s.Held != 1 || s.Mutexes != 1 || s.Polling != 0 || s.Acquired != 0 || s.Seq != 10 {
			t.Errorf("the stats of the second start are %+v", s)
		}
		if events, _, err := e.History(t.Context(), simba.HistoryRequest{Mutex: "m", Count: 10}); len(events) != 0 || err != nil {
			t.Errorf("the history is %v (%v), want none", events, err)
		}
		if o, err := acquire("m", "c"); o.Status != simba.StatusQueued || o.Owner != "o" || err != nil {
			t.Errorf("Acquire of the recovered lease returned %+v, %v", o, err)
		}
		if o, err := acquire("m", "d"); !errors.Is(err, simba.ErrOutOfMemory) {
			t.Errorf("Acquire above the limit of the queue returned %+v, %v", o, err)
		}
		time.Sleep(90 * time.Second) // the lease has ended for 30 s
		if q, _, err := e.Queue(t.Context(), "m", 10); len(q) != 1 || err != nil {
			t.Errorf("30 s after the end of the lease, the queue is %+v (%v), want c", q, err)
		}
		if o, err := acquire("m", "c"); o.Status != simba.StatusAcquired || o.Token <= 7 || err != nil {
			t.Errorf("Acquire of the first in the queue returned %+v, %v", o, err)
		}
	})
}
