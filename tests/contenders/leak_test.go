package contenders

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/leaks"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// The test is not parallel, because it counts the goroutines of the process. Leases are long, since
// a restart of the server may take many seconds, and Close returns an error for a lost lease.
func TestNothingRunsAfterClose(t *testing.T) {
	s := simbatest.Start(t)
	before := goleak.IgnoreCurrent()
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr, ContextTimeoutEnabled: true})
	c, err := client.New(rdb, client.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	owner, waiter := newRecorded(t, c, stable("contender")), newRecorded(t, c, stable("contender"))
	owner.start(t)
	within(t, "OnAcquired is called", owner.acquired)
	waiter.start(t)
	within(t, "the waiter is in the queue", waiter.waits(t))
	l, err := c.Lock(t.Context(), "lock", client.WithTTL(stableLease))
	if err != nil {
		t.Fatal(err)
	}
	beats := make(chan struct{}, 1)
	sch, err := c.NewScheduler(client.ScheduleConfig{
		Mutex: "schedule", TTL: stableLease, Period: time.Millisecond,
		Work: func(context.Context) error {
			select {
			case beats <- struct{}{}:
			default: // nobody receives
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := sch.Start(); err != nil {
		t.Fatal(err)
	}
	within(t, "scheduled work runs", beats)

	s.Restart() // the client repeats requests that fail
	waiter.stop(t)
	owner.stop(t)
	if err := sch.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Close(); err != nil {
		t.Fatal(err)
	}
	if err := leaks.Find(before, goleak.IgnoreAnyFunction(tryDial), goleak.IgnoreAnyFunction("github.com/simba-resp/simba-resp/tests/simbatest.run.func1")); err != nil {
		t.Error(err)
	}
}
