package main

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/engine"
)

func TestSwapUsesTheEngineOfTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := newSwap(time.Second, time.Second)
		must(t, err)
		next := func() *engine.Engine {
			e, err := engine.New(engine.Config{Clock: engine.NewClock(0), HandoffWindow: time.Hour}, engine.Memory(), engine.Recovery{})
			must(t, err)
			t.Cleanup(e.Stop)
			return e
		}
		acquire := func(contender string) (simba.Outcome, error) {
			o, _, err := s.Acquire(t.Context(), simba.AcquireRequest{Mutex: "m", Contender: contender, TTL: time.Minute})
			return o, errors.Join(err, s.Commit(o.Seq))
		}
		refused := func(when string) {
			t.Helper()
			_, updated := s.UpdateOne("m", func(simba.Tx) error { return nil })
			if o, err := acquire("x"); !errors.Is(err, simba.ErrStopped) || !errors.Is(updated, simba.ErrStopped) {
				t.Errorf("%s: Acquire returned %+v, %v and UpdateOne %v, want ErrStopped", when, o, err, updated)
			}
		}
		refused("before the first term")
		first, second := next(), next()
		s.use(first)
		if o, err := acquire("a"); o.Status != simba.StatusAcquired || err != nil {
			t.Errorf("Acquire in the first term returned %+v, %v", o, err)
		}
		s.SetQueueGrace(time.Minute)
		s.LimitQueues(1)
		first.Stop()
		refused("after the stop of the engine")
		s.use(s.stopped)
		refused("after the first term")
		s.use(second)
		if o, err := acquire("b"); o.Status != simba.StatusAcquired || err != nil {
			t.Errorf("Acquire in the second term returned %+v, %v", o, err)
		}
		if o, err := acquire("c"); o.Status != simba.StatusQueued || err != nil {
			t.Errorf("Acquire by another contender returned %+v, %v", o, err)
		}
		if o, err := acquire("d"); !errors.Is(err, simba.ErrOutOfMemory) {
			t.Errorf("Acquire above the limit of the queue returned %+v, %v", o, err)
		}
		time.Sleep(90 * time.Second) // the lease has ended for 30 s
		if q, _, err := s.Queue(t.Context(), "m", 10); len(q) != 1 || err != nil {
			t.Errorf("30 s after the end of the lease, the queue is %+v (%v), want c", q, err)
		}
	})
}
