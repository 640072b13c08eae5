// Package handoffs tests handoffs of mutexes among many waiters, some of which are dead.
package handoffs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// bound limits the 99.9 % quantile of the times of handoffs in a long test.
const bound = 100 * time.Millisecond

// TestNoHandoffIsLostToDeadWaiters queues 1 to 50 waiters for a mutex. Some waiters die while they
// wait, some when they are next. Then the owner releases the mutex. Every living waiter must get it
// soon, in the order of the queue.
//
// The server skips a waiter whose connection is closed. It notices a frozen machine or a broken
// network only by keepalive, after 11 s. Until then it may grant the mutex to the dead waiter. The
// following waiter then gets the mutex when the lease of the dead waiter ends.
func TestNoHandoffIsLostToDeadWaiters(t *testing.T) {
	for _, engine := range simbatest.Engines {
		t.Run(engine, func(t *testing.T) {
			// The long test measures time, so one subtest runs at a time.
			if !simbatest.Long() {
				t.Parallel()
			}
			c := simbatest.NewCampaign(t, "handoffs, some of 1 to 50 waiters dead", engine)
			want := simbatest.Count(50, 500)
			if engine == "embedded" {
				want = simbatest.Count(150, 10_000)
			}
			// The server cannot know how soon a polling waiter reacts to its notice.
			flags := []string{"--handoff-window", simbatest.Patience.String()}
			if engine == "embedded" {
				flags = append(flags, "--data-dir", stores.Scratch(t)+"/data")
			}
			s := simbatest.StartOn(c, engine, flags...)
			// With priority, other processes do not delay the server and its clients.
			if engine == "embedded" && simbatest.Long() {
				s.Prefer(t)
				simbatest.Prefer(t)
			}
			took, died := handOff(c, s.Addr, want)
			c.Counted(len(took), "%v; dead: %s", took, died)
			// Engines with a store exceed the bound: they poll the store for the end of a lease.
			if p := took.Quantile(0.999); engine == "embedded" && simbatest.Long() && p > bound {
				c.Errorf("the 99.9 %% quantile of handoffs is %v, want at most %v: %v", p, bound, took)
			}
		})
	}
}

const workers = 8 // concurrent rounds; a round mostly waits for leases of dead waiters

// handOff runs rounds until there were as many handoffs as want says. It returns the time of each
// handoff, and the number of dead waiters by their fate.
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

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
