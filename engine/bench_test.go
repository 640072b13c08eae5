package engine

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
)

func benchEngine(b *testing.B) *Engine {
	e, err := New(Config{Clock: NewClock(0)}, Memory(), Recovery{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.Stop)
	return e
}

func BenchmarkAcquireRelease(b *testing.B) {
	e := benchEngine(b)
	ctx := context.Background()
	var worker atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		name := fmt.Sprint("m", worker.Add(1))
		for pb.Next() {
			o, _, _ := e.Acquire(ctx, simba.AcquireRequest{Mutex: name, Contender: "c", TTL: time.Minute})
			_ = e.Commit(o.Seq)
			_, seq, _ := e.Release(ctx, simba.ReleaseRequest{Mutex: name, Contender: "c"})
			_ = e.Commit(seq)
		}
	})
}

func BenchmarkGuard(b *testing.B) {
	e := benchEngine(b)
	ctx := context.Background()
	for _, held := range []int{10, 1_000_000} {
		b.Run(fmt.Sprint("held=", held), func(b *testing.B) {
			names := make([]string, held)
			for i := range names {
				names[i] = fmt.Sprint("m", i)
				_, _, _ = e.Acquire(ctx, simba.AcquireRequest{Mutex: names[i], Contender: "c", TTL: time.Hour})
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				_, _ = e.Guard(ctx, simba.GuardRequest{Mutex: names[i%held], Contender: "c", TTL: time.Hour})
			}
		})
	}
}

func BenchmarkHeldMutexBytes(b *testing.B) {
	const n = 1_000_000
	for range b.N {
		e := benchEngine(b)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range n {
			_, _, _ = e.Acquire(context.Background(), simba.AcquireRequest{Mutex: fmt.Sprintf("m:%012d", i), Contender: "c", TTL: time.Hour})
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "live-B/mutex")
		runtime.KeepAlive(e)
	}
}

// BenchmarkKeyTaken does what SET … NX PX does for a new key. BenchmarkKeyRenewed does what a SET
// by the owner does.
func BenchmarkKeyTaken(b *testing.B) { benchKeys(b, b.N) }

func BenchmarkKeyRenewed(b *testing.B) { benchKeys(b, 1000) }

func benchKeys(b *testing.B, keys int) {
	e, err := New(Config{Clock: NewClock(0)}, Memory(), Recovery{})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Stop()
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprint("key:", i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		name := names[i%keys]
		tx := e.beginTx()
		if l := tx.Lock(name); l.Exists() {
			tx.Change(name, simba.Lock{Owner: l.Owner, TTL: time.Hour}, true)
		} else {
			tx.Take(name, simba.Lock{Owner: "owner", TTL: time.Hour})
		}
		if _, err := tx.commit(); err != nil {
			b.Fatal(err)
		}
		tx.end()
	}
}
