package engine

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

// heap is how many bytes are alive.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first has found to be garbage is gone
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestBytesAreWhatTheHeapHolds allows a third of difference: tables and lists grow by doubling.
func TestBytesAreWhatTheHeapHolds(t *testing.T) {
	const n = 50_000
	long := strings.Repeat("x", 200)
	ask := func(e *Engine, mutex, contender string) {
		if _, _, err := e.Acquire(context.Background(), simba.AcquireRequest{Mutex: mutex, Contender: contender, TTL: time.Hour}); err != nil {
			t.Error(err)
		}
	}
	hash := func(i int) simba.Lock {
		name := fmt.Sprint("field", i)
		return simba.Lock{Owner: name, Fields: []simba.Field{{Name: name, Value: "1"}}, TTL: time.Hour}
	}
	for _, c := range []struct {
		name string
		fill func(e *Engine, i int)
	}{
		{"mutexes", func(e *Engine, i int) { ask(e, fmt.Sprint("mutex", i), fmt.Sprint("owner", i)) }},
		{"mutexes with long names", func(e *Engine, i int) { ask(e, fmt.Sprint(long, i), long) }},
		{"a queue", func(e *Engine, i int) { ask(e, "m", fmt.Sprint("contender", i)) }},
		{"short queues", func(e *Engine, i int) { ask(e, fmt.Sprint("mutex", i/2), fmt.Sprint("contender", i)) }},
		{"hashes", func(e *Engine, i int) {
			tx := e.Begin()
			defer tx.Close()
			tx.Take(fmt.Sprint("hash", i), hash(i))
			if _, err := tx.Commit(context.Background()); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := New(Config{Clock: NewClock(1000), QueueGrace: time.Hour, HistoryLen: 1}, Memory(), Recovery{})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Stop()
			before := heap()
			for i := range n {
				c.fill(e, i)
			}
			counted, held := e.Bytes(), heap()-before
			t.Logf("%d bytes are counted, the heap has %d more: %d and %d each", counted, held, counted/n, held/n)
			if counted < held*3/4 || counted > held*4/3 {
				t.Errorf("%d bytes are counted, the heap has %d more", counted, held)
			}
			runtime.KeepAlive(e)
		})
	}
}

func TestNothingIsCountedOfWhatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{})
		w.acquire("released", "a", sec, 0)
		w.acquire("expired", "a", sec, 0)
		w.acquire("expired", "lapses", sec, 0)
		if w.e.Bytes() < 2*mutexBytes+contentionBytes+entryBytes {
			t.Errorf("%d bytes are counted", w.e.Bytes())
		}
		w.release(simba.ReleaseRequest{Mutex: "released", Contender: "a"})
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := w.e.Bytes(); n != 0 {
			t.Errorf("%d bytes are counted of nothing", n)
		}
	})
}

func TestRecoveredMutexesAreCounted(t *testing.T) {
	l := simba.Lease{Mutex: "m", Owner: "a", Token: 1, TTL: time.Hour}
	w := newWorld(t, Recovery{Token: 1, Leases: func(yield func(simba.Lease, error) bool) { yield(l, nil) }})
	w.audit()
	if n := w.e.Bytes(); n != int64(mutexBytes+len("ma")) {
		t.Errorf("%d bytes are counted", n)
	}
}
