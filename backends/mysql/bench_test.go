package mysql

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/seeds"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

const benchClients = 64

// eachClient runs pair b.N times in all, from 64 concurrent clients.
func eachClient(b *testing.B, pair func(client int) error) {
	b.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for client := range benchClients {
		all.Go(func() {
			for next.Add(1) <= int64(b.N) {
				if err := pair(client); err != nil {
					b.Errorf("ACQUIRE and RELEASE: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}

// seedPair acquires and releases as Simba's JDBC contender does.
func seedPair(b *testing.B, j jvm) error {
	for {
		owns, err := j.acquire(b.Context())
		if err != nil && errorNumber(err) != errDeadlock {
			return err
		}
		if owns {
			return j.release(b.Context())
		}
	}
}

func seedClients(b *testing.B, store *stores.Server, mutex func(client int) string) []jvm {
	db := direct(b, store, "?interpolateParams=true")
	db.SetMaxOpenConns(benchClients)
	db.SetMaxIdleConns(benchClients)
	list := make([]jvm, benchClients)
	for i := range list {
		list[i] = jvm{db: db, mutex: mutex(i), id: fmt.Sprintf("c%d", i), ttl: long}
		must(b, db, seeds.MySQLInit, list[i].mutex)
	}
	return list
}

// BenchmarkOwnMutex measures acquire and release by 64 clients. Each has a mutex of its own.
func BenchmarkOwnMutex(b *testing.B) {
	store := stores.MariaDB(b)
	backend := serve(b, store.Addr, nil)
	own := func(client int) string { return fmt.Sprintf("own-%d", client) }
	b.Run("seed", func(b *testing.B) {
		clients := seedClients(b, store, own)
		eachClient(b, func(i int) error { return seedPair(b, clients[i]) })
	})
	b.Run("ours", func(b *testing.B) {
		eachClient(b, func(i int) error { return pair(b, backend, own(i), fmt.Sprintf("c%d", i), false) })
	})
	b.Run("ours-waiting", func(b *testing.B) {
		eachClient(b, func(i int) error { return pair(b, backend, own(i), fmt.Sprintf("c%d", i), true) })
	})
}

// BenchmarkOwnMutexOnTheSeedsTable uses the table without fencing_token.
func BenchmarkOwnMutexOnTheSeedsTable(b *testing.B) {
	backend := serve(b, serverWithSeedTable(b).Addr, withoutMigration)
	eachClient(b, func(i int) error { return pair(b, backend, fmt.Sprintf("own-%d", i), fmt.Sprintf("c%d", i), false) })
}

// BenchmarkHotMutex measures 64 clients of one mutex. Simba's own clients poll without a pause,
// which is their best case.
func BenchmarkHotMutex(b *testing.B) {
	store := stores.MariaDB(b)
	backend := serve(b, store.Addr, nil)
	hot := func(int) string { return "hot" }
	b.Run("seed", func(b *testing.B) {
		clients := seedClients(b, store, hot)
		eachClient(b, func(i int) error { return seedPair(b, clients[i]) })
	})
	b.Run("ours", func(b *testing.B) {
		eachClient(b, func(i int) error { return pair(b, backend, "hot", fmt.Sprintf("c%d", i), true) })
	})
}

func pair(b *testing.B, backend *Backend, mutex, contender string, wait bool) error {
	r := request(mutex, contender, long)
	w := &waiter{woken: make(chan struct{})}
	if wait {
		r.Waiter = w
	}
	o, ticket, err := backend.Acquire(b.Context(), r)
	if err == nil && ticket != nil {
		<-w.woken
		o, err = ticket.End(simba.EndWoken)
	}
	if err != nil || o.Status != simba.StatusAcquired {
		return fmt.Errorf("the ACQUIRE returned %+v and the error %w; want acquired", o, err)
	}
	if ok, _, err := backend.Release(b.Context(), simba.ReleaseRequest{Mutex: mutex, Contender: contender}); !ok || err != nil {
		return fmt.Errorf("the RELEASE returned %v and the error %w; want true", ok, err)
	}
	return nil
}

// BenchmarkHandoff measures the time from a release until the wait of another client of the same
// server returns.
func BenchmarkHandoff(b *testing.B) {
	store := stores.MariaDB(b)
	backend := serve(b, store.Addr, nil)
	owner, other := "a", "b"
	take(b, backend, "handoff", owner, long)
	total := time.Duration(0)
	for b.Loop() {
		w := block(b, backend, "handoff", other, long)
		began := time.Now()
		release(b, backend, "handoff", owner)
		w.granted(b)
		total += time.Since(began)
		owner, other = other, owner
	}
	b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs/handoff")
}
