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

// counter counts what a process prints.
type counter struct{ atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) { c.Add(1); return len(p), nil }

// start runs the program as a process would. stop ends it and waits.
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
		time.Sleep(time.Second) // their clocks differ by that
		stopB := start(t, rdb, "locker", &b)
		time.Sleep(time.Hour + 10*time.Second) // not at the instant of a run
		if n := a.Load() + b.Load(); n != 60 {
			t.Errorf("in an hour it runs %d times, of which %d by b", n, b.Load())
		}
		stopB()
		before := a.Load()
		time.Sleep(time.Hour)
		if n := a.Load() - before; n != 60 {
			t.Errorf("alone a runs it %d times", n)
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
		time.Sleep(time.Hour + 10*time.Second) // not at the instant of a run
		if a.Load() != 60 || b.Load() != 0 {
			t.Errorf("the leader runs it %d times, the other %d times", a.Load(), b.Load())
		}
		stopA()
		time.Sleep(time.Hour)
		if a.Load() != 60 || b.Load() != 60 {
			t.Errorf("the first leader runs it %d times, the next %d times", a.Load(), b.Load())
		}
	})
}

func TestUnknownWayToShareIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if err := run(t.Context(), simbatest.Start(t), "luck", time.Minute, io.Discard); err == nil {
			t.Error("no error")
		}
	})
}
