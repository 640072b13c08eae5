package crash

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/persist"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// TestAnEngineIsBuiltAnewFromCheckpointAndRecords stops an engine again and again, and builds
// another on the same open store. Each must have the same mutexes and the same history.
func TestAnEngineIsBuiltAnewFromCheckpointAndRecords(t *testing.T) {
	for _, mode := range []persist.Mode{persist.Always, persist.Async} {
		for seed := range uint64(5) {
			t.Run(fmt.Sprint(mode, " ", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { rebuild(t, mode, seed) })
			})
		}
	}
}

const rebuiltMutexes = 12

func rebuild(t *testing.T, mode persist.Mode, seed uint64) {
	// Fake time begins in 2000, and a new store refuses clocks before 2026.
	time.Sleep(time.Until(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)))
	rng := rand.New(rand.NewPCG(seed, 7))
	boot := persist.Boot{ID: "boot 1", Now: engine.NewClock(simba.Instant(time.Hour)).Now}
	store, recovered, err := persist.Open(persist.Options{
		Dir: "data", FS: vfs.NewMem(), Mode: mode, Boot: boot,
		SegmentSize: 8 << 10, // a run fills several segments
	})
	simbatest.Must(t, err)
	clock := engine.NewClock(boot.Now())
	var e *engine.Engine
	start := func(r *persist.Recovered) {
		if e, err = engine.New(engine.Config{Clock: clock}, store, engine.Recovery(*r)); err != nil {
			t.Fatal(err)
		}
	}
	start(recovered)
	last := uint64(0)
	for range 10 {
		for range 100 {
			last = max(last, useAnyMutex(t, e, rng, last))
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		}
		before := stateOf(t, e)
		e.Stop()
		if recovered, err = store.Replay(); err != nil {
			t.Fatal(err)
		}
		start(recovered)
		after := stateOf(t, e)
		for i := range before {
			if !reflect.DeepEqual(after[i], before[i]) {
				t.Fatalf("mutex %d is %+v in the new engine, and was %+v", i, after[i], before[i])
			}
		}
	}
	e.Stop()
	simbatest.Must(t, store.Close())
}

// useAnyMutex does a random action on a random mutex. It returns the token of a tenure that Acquire
// began, or 0. The token must be larger than last.
func useAnyMutex(t *testing.T, e *engine.Engine, rng *rand.Rand, last uint64) (token uint64) {
	t.Helper()
	name, contender := fmt.Sprint("m", rng.IntN(rebuiltMutexes)), fmt.Sprint("c", rng.IntN(3))
	ttl, transition := time.Duration(1+rng.IntN(60))*time.Second, time.Duration(rng.IntN(3))*time.Second
	var seq simba.Seq
	var err error
	switch rng.IntN(4) {
	case 0:
		_, seq, err = e.Release(t.Context(), simba.ReleaseRequest{Mutex: name, Contender: contender})
	case 1:
		seq, err = e.Update(func(tx simba.Tx) error {
			if tx.MayTake(name, contender) {
				tx.Take(name, simba.Lock{Owner: contender, TTL: ttl, Fields: []simba.Field{{Name: contender, Value: "1"}}})
			}
			return nil
		})
	default:
		var o simba.Outcome
		o, _, err = e.Acquire(t.Context(), simba.AcquireRequest{
			Mutex: name, Contender: contender, TTL: ttl, Transition: transition, Session: uint64(rng.IntN(2)), NoQueue: true,
		})
		if seq = o.Seq; o.Status == simba.StatusAcquired {
			if token = o.Token; token <= last {
				t.Fatalf("Acquire returns the token %d, want more than %d, the last one", token, last)
			}
		}
	}
	if err == nil && rng.IntN(4) > 0 {
		err = e.Commit(seq)
	}
	simbatest.Must(t, err)
	return token
}

// mutexState is the visible state of a mutex without its queue.
type mutexState struct {
	tenure simba.Tenure
	lock   simba.Lock
	events []simba.Event
}

func stateOf(t *testing.T, e *engine.Engine) (all []mutexState) {
	t.Helper()
	for i := range rebuiltMutexes {
		name := fmt.Sprint("m", i)
		tenure, _, err := e.Owner(t.Context(), name)
		simbatest.Must(t, err)
		var lock simba.Lock
		if _, err := e.Update(func(tx simba.Tx) error { lock = tx.Lock(name); return nil }); err != nil {
			t.Fatal(err)
		}
		events, _, err := e.History(t.Context(), simba.HistoryRequest{Mutex: name, Count: 10_000})
		simbatest.Must(t, err)
		tenure.Session = 0 // a session is a connection, which ends with the engine
		all = append(all, mutexState{tenure, lock, slices.Clone(events)})
	}
	return all
}
