package contenders

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// beat is one run of the scheduled work, with the token of its tenure.
type beat struct {
	of    int // the number of the scheduler
	token uint64
}

// schedule runs three schedulers of one mutex. Only one of them may work at a time. When that one
// stops, another one must work.
func schedule(t *testing.T, s *simbatest.Server) {
	const schedulers, beats = 3, 5
	done := make(chan beat)
	var working sync.Mutex // locked while a scheduler works
	var all []*client.Scheduler
	for i := range schedulers {
		sch, err := newClient(t, s.Addr).NewScheduler(client.ScheduleConfig{
			Mutex: "schedule", TTL: stableLease, Transition: stableLease,
			Period: 20 * time.Millisecond, Strategy: client.Strategy(i % 2), // both strategies
			Work: func(ownership context.Context) error {
				if !working.TryLock() {
					t.Error("two schedulers work at a time")
					return nil
				}
				defer working.Unlock()
				select {
				case done <- beat{i, client.Token(ownership)}:
				case <-ownership.Done():
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sch.Stop(context.Background()) })
		if err := sch.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, sch)
	}
	var last beat
	for round := range schedulers {
		first := within(t, "scheduled work runs", done)
		for range beats {
			if b := within(t, "scheduled work runs", done); b != first {
				t.Errorf("round %d: the work %+v ran, want only work of %+v", round, b, first)
			}
		}
		if first.token <= last.token {
			t.Errorf("token %d follows token %d, want a larger token", first.token, last.token)
		}
		last = first
		if err := all[first.of].Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case b := <-done:
		t.Errorf("the work %+v ran after the stop of all schedulers", b)
	case <-time.After(100 * time.Millisecond):
	}
	if n := serverSaw(t, changes(t, connect(t, s.Addr), "schedule"), nil); n != schedulers {
		t.Errorf("the server had %d tenures, want %d", n, schedulers)
	}
}
