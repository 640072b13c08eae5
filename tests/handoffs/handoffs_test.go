package handoffs

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// bound limits the time of a handoff, except for one in a thousand.
const bound = 100 * time.Millisecond

// TestNoHandoffIsLostToDeadWaiters queues 1 to 50 waiters for a mutex. A random part of them dies,
// some while they wait, some just as they are next. Then the owner releases. Every living waiter
// must get the mutex, in the order of the queue, and soon.
//
// The server knows a waiter with a closed connection as dead, and skips it. A waiter whose machine
// is gone or frozen sends nothing. Keepalive finds it after 11 s. Until then it is granted the
// mutex when it is next, and the following waiter gets it when that lease ends.
func TestNoHandoffIsLostToDeadWaiters(t *testing.T) {
	for _, engine := range simbatest.Engines {
		t.Run(engine, func(t *testing.T) {
			// where time is measured, one runs alone; otherwise they mostly wait
			if !simbatest.Long() {
				t.Parallel()
			}
			c := simbatest.NewCampaign(t, "handoffs, some of 1 to 50 waiters dead", engine)
			want := simbatest.Count(50, 500)
			if engine == "embedded" {
				want = simbatest.Count(150, 10_000)
			}
			// The server does not control how soon a polling waiter reacts to its notice.
			flags := []string{"--handoff-window", simbatest.Patience.String()}
			if engine == "embedded" {
				flags = append(flags, "--data-dir", stores.Scratch(t)+"/data")
			}
			// a busy machine loses a short session, with its tenures and queue entries
			if engine == "zookeeper" {
				flags = append(flags, "--zookeeper-session-timeout", simbatest.Patience.String())
			}
			s := simbatest.StartOn(c, engine, flags...)
			// the bound is for the server and its clients, not for other processes
			if engine == "embedded" && simbatest.Long() {
				s.Prefer(t)
				simbatest.Prefer(t)
			}
			took, died := handOff(c, s.Addr, want)
			c.Counted(len(took), "%v; dead: %s", took, died)
			// The bound is not for engines that poll their store for the end of a lease.
			if p := took.Quantile(0.999); engine == "embedded" && simbatest.Long() && p > bound {
				c.Errorf("p99.9 is %v: %v", p, took)
			}
		})
	}
}

const workers = 8 // mutexes at a time: they mostly wait for leases of dead waiters

// handOff runs rounds until there were enough handoffs. It returns the time of each, and the number
// of dead waiters of each kind.
func handOff(t testing.TB, addr string, want int) (took simbatest.Latencies, died deaths) {
	var (
		mu    sync.Mutex // guards took, died and next
		next  int
		all   sync.WaitGroup
		seeds = rand.New(rand.NewPCG(1, 2))
	)
	died = make(deaths)
	for range workers {
		cut, hole := stores.NewLink(t, addr), stores.NewLink(t, addr)
		all.Go(func() {
			for {
				mu.Lock()
				if len(took) >= want || t.Failed() {
					mu.Unlock()
					return
				}
				r := &round{
					t: t, addr: addr, cut: cut, hole: hole,
					mutex: fmt.Sprint("m", next), rng: rand.New(rand.NewPCG(seeds.Uint64(), 0)),
				}
				next++
				mu.Unlock()
				handoffs := r.run()
				mu.Lock()
				took = append(took, handoffs...)
				died.add(r.waiters)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return took, died
}
