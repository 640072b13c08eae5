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

// bound is how soon the next must own a mutex that is given up or whose lease has ended, but once in a
// thousand times.
const bound = 100 * time.Millisecond

// TestNoHandoffIsLostToDeadWaiters has 1 to 50 waiters queue for a mutex, of whom a random part dies, the
// first among them or not, while they wait or just as it is their turn. Then the mutex goes from hand to hand:
// every waiter that lives must get it, in its turn, and soon.
//
// A waiter whose connection has broken is known to be dead, and passed over. One whose machine is gone, or
// stands still, sends nothing that would tell: the server knows of it by keepalive after 11 s. Until then such
// a waiter is granted the mutex in its turn, and the next gets it when that lease ends.
func TestNoHandoffIsLostToDeadWaiters(t *testing.T) {
	for _, engine := range simbatest.Engines {
		t.Run(engine, func(t *testing.T) {
			if !simbatest.Long() { // where time is measured one runs alone; else they mostly wait for leases to end
				t.Parallel()
			}
			c := simbatest.NewCampaign(t, "handoffs, some of 1 to 50 waiters dead", engine)
			want := simbatest.Count(50, 500)
			if engine == "embedded" {
				want = simbatest.Count(150, 10_000)
			}
			// How soon one that listens comes when it is told is not the server's affair.
			flags := []string{"--handoff-window", simbatest.Patience.String()}
			if engine == "embedded" {
				flags = append(flags, "--data-dir", stores.Scratch(t)+"/data")
			}
			if engine == "zookeeper" { // on a busy machine a short session is lost, and the tenures and places with it
				flags = append(flags, "--zookeeper-session-timeout", simbatest.Patience.String())
			}
			s := simbatest.StartOn(c, engine, flags...)
			if engine == "embedded" && simbatest.Long() { // its bound is for the server and its clients, not for what else keeps processors and disk busy
				s.Prefer(t)
				simbatest.Prefer(t)
			}
			took, told := handOn(c, s.Addr, want)
			c.Counted(len(took), "%v; dead: %s", took, told)
			// A store that is asked again and again when a lease has ended is not bound by the issue.
			if p := took.Quantile(0.999); engine == "embedded" && simbatest.Long() && p > bound {
				c.Errorf("p99.9 is %v: %v", p, took)
			}
		})
	}
}

const workers = 8 // mutexes at a time: they mostly wait for the leases of the dead

// handOn plays rounds until there were so many handoffs. It returns how long each took, and how many of the dead
// died in which way.
func handOn(t testing.TB, addr string, want int) (took simbatest.Latencies, died census) {
	var (
		mu    sync.Mutex // guards took, died and next
		next  int
		all   sync.WaitGroup
		seeds = rand.New(rand.NewPCG(1, 2))
	)
	died = make(census)
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
				handoffs := r.play()
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
