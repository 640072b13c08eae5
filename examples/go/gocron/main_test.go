package main

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client/simbatest"
)

// counter counts the lines that a process prints.
type counter struct{ atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) { c.Add(1); return len(p), nil }

// start runs the program in a goroutine. stop stops the program and waits for its end.
func start(t *testing.T, rdb *redis.Client, by string, out io.Writer) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx, rdb, by, time.Minute, out); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

func TestLockerRunsTheJobOnceOfTwoSchedulers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := simbatest.Start(t)
		var a, b counter
		start(t, rdb, "locker", &a)
		time.Sleep(time.Second) // the clocks of the two schedulers differ by a second
		stopB := start(t, rdb, "locker", &b)
		time.Sleep(time.Hour + 10*time.Second) // to a time at which no run is due
		if n := a.Load() + b.Load(); n != 60 {
			t.Errorf("in an hour the job ran %d times, of which %d in b, want 60", n, b.Load())
		}
		stopB()
		before := a.Load()
		time.Sleep(time.Hour)
		if n := a.Load() - before; n != 60 {
			t.Errorf("after b has stopped, a runs the job %d times in an hour, want 60", n)
		}
	})
}

func TestElectorRunsTheJobOnTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := simbatest.Start(t)
		var a, b counter
		stopA := start(t, rdb, "elector", &a)
		time.Sleep(time.Second)
		start(t, rdb, "elector", &b)
		time.Sleep(time.Hour + 10*time.Second) // to a time at which no run is due
		if a.Load() != 60 || b.Load() != 0 {
			t.Errorf("the leader has run the job %d times, the other %d times, want 60 and 0", a.Load(), b.Load())
		}
		stopA()
		time.Sleep(time.Hour)
		if a.Load() != 60 || b.Load() != 60 {
			t.Errorf("the first leader has run the job %d times, the next %d times, want 60 and 60", a.Load(), b.Load())
		}
	})
}

func TestUnknownWayToShareIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := run(t.Context(), simbatest.Start(t), "luck", time.Minute, io.Discard); err == nil {
			t.Error("run accepts --by luck")
		}
	})
}
