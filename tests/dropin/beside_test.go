package dropin

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/contend"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// ours is a contender that uses this project's Go client. "theirs" are contenders of Simba.
type ours struct {
	id       string
	k        *contend.Contender
	acquired chan uint64 // tokens of its tenures
	last     uint64      // the token of its last tenure
}

func newOurs(t testing.TB, addr, mutex, id string, lease int64) *ours {
	t.Helper()
	c, err := client.New(connectTo(t, addr), client.Options{Logger: slog.New(slog.DiscardHandler)})
	simbatest.Must(t, err)
	t.Cleanup(func() { c.Close() })
	k := &ours{id: id, acquired: make(chan uint64, 1)}
	k.k, err = contend.New(c, mutex, 0, func(ctx context.Context) { k.acquired <- client.Token(ctx) }, nil, client.WithID(id),
		client.WithTTL(time.Duration(lease)*time.Millisecond*2/3), client.WithTransition(time.Duration(lease)*time.Millisecond/3))
	simbatest.Must(t, err)
	return k
}

func (k *ours) acquire(ctx context.Context) (string, error) {
	if err := k.k.Start(); err != nil {
		return "", err
	}
	select {
	case k.last = <-k.acquired:
		return k.id, nil
	case <-ctx.Done():
		_ = k.k.Stop(context.WithoutCancel(ctx)) // the test fails anyway
		return "", fmt.Errorf("%s did not acquire the mutex: %w", k.id, ctx.Err())
	}
}

func (k *ours) token() uint64 { return k.last }

func (k *ours) release(ctx context.Context) error { return k.k.Stop(ctx) }

// allWays is one more rule for contests with contenders of Simba.
const allWays = "the mutex goes from each kind of contender to each"

// beside runs a contest of contenders of Simba with two of ours: one uses SIMBA.ACQUIRE … WAIT, one
// the Go client. The contest ends when the owner has changed often enough, in all directions, and
// each contender has been the owner. Leases are long, so a waiter that misses its notice fails the
// test. Pauses differ in length, so the mutex is free now and then. Only then can contenders
// without an entry in our queue acquire it.
func beside(t *testing.T, at *site, mutex string, theirs ...contender) {
	t.Helper()
	const changes = 100
	pause := time.Duration(len(theirs)) * 25 * time.Millisecond
	c := newContestAt(t, at, mutex)
	c.patience = early
	// This subscription makes our server watch the mutex while no client of ours waits.
	sub := c.rdb.Subscribe(t.Context(), seeds.Lease(mutex))
	t.Cleanup(func() { sub.Close() })
	_, err := sub.Receive(t.Context())
	simbatest.Must(t, err)
	all := len(theirs) + 2
	end := time.Now().Add(longestLoad)
	c.mix(theirs, pause, func() bool {
		return time.Now().After(end) || c.noted.reached(changes, all) && len(c.noted.ways()) == 4
	})
	c.inAllDirections(fromKilled)
	c.end()
}

// mix lets contenders of Simba and two of ours acquire and release the mutex. It returns when
// enough returns true, or when a contender has waited too long.
func (c *contest) mix(theirs []contender, pause time.Duration, enough func() bool) {
	c.t.Helper()
	var running sync.WaitGroup
	stop, stopOurs := make(chan struct{}), make(chan struct{})
	for _, k := range theirs {
		c.enterUntil(&running, k, stop, pause)
	}
	c.enterUntil(&c.running, &simba{connect(c.t, c.server), c.mutex, "waits", c.lease}, stopOurs, pause)
	c.enterUntil(&c.running, newOurs(c.t, c.at.last().Addr, c.mutex, "client", cmp.Or(c.lease, lease)), stopOurs, pause)
	for !enough() && !c.noted.starved() {
		time.Sleep(10 * time.Millisecond)
	}
	close(stop)
	running.Wait()
	// Ours stop last. A release by Simba 3.1 or earlier notifies only the first waiter in the
	// queue. Without ours, a contender of a later version might then wait until the lease ends.
	close(stopOurs)
	c.running.Wait()
}

// fromKilled is the way (see the method ways) from a killed owner to the next owner. The next owner
// also waits for the end of the killed owner's lease.
const fromKilled = "from a killed owner"

// ways returns the times between successive tenures by "way": the kinds of the two owners, such as
// "theirs to ours". It lacks an owner that was killed before it reported its tenure. The lease of
// that owner then lengthens the time between the tenures before and after.
func (l *notes) ways() map[string]simbatest.Latencies {
	ways := make(map[string]simbatest.Latencies)
	kind := func(n tenure) string {
		if n.kind == "*dropin.simba" || n.kind == "*dropin.ours" {
			return "ours"
		}
		return "theirs"
	}
	all := l.inOrder()
	for i := 1; i < len(all); i++ {
		if all[i-1].Owner != all[i].Owner {
			way := kind(all[i-1]) + " to " + kind(all[i])
			if all[i-1].killed {
				way = fromKilled
			}
			ways[way] = append(ways[way], all[i].From-all[i-1].To)
		}
	}
	return ways
}

// inAllDirections checks that the owner changes in all directions, except those that are a matter
// of chance.
func (c *contest) inAllDirections(chance ...string) {
	ways := c.noted.ways()
	for _, way := range []string{"theirs to theirs", "theirs to ours", "ours to theirs", "ours to ours", fromKilled} {
		c.t.Logf("%s: %d times, %v", way, len(ways[way]), ways[way])
		if len(ways[way]) == 0 && !slices.Contains(chance, way) {
			c.noted.breaks(allWays, "the owner never changes from %s", way)
		}
	}
}

// legacyChannels wakes contenders of Simba before 3.0.2. Without it they only poll.
const legacyChannels = "--legacy-simba-channels"

// TestSimbaContendersAndOursShareAMutex runs a contest for each generation with two contenders of
// Simba. A last contest has one contender of each generation.
func TestSimbaContendersAndOursShareAMutex(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"redis", "embedded"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			at := newSite(t, engine, 2, legacyChannels)
			for _, gen := range seeds.Generations {
				t.Run(gen.Name, func(t *testing.T) {
					t.Parallel()
					mutex := "shared-" + gen.Name
					beside(t, at, mutex, newJVM(t, at.store, gen, mutex, "jvm0"), newJVM(t, at.store, gen, mutex, "jvm1"))
				})
			}
			t.Run("all generations", func(t *testing.T) {
				var theirs []contender
				for _, gen := range seeds.Generations {
					theirs = append(theirs, newJVM(t, at.store, gen, "shared", "jvm-"+gen.Name))
				}
				beside(t, at, "shared", theirs...)
			})
		})
	}
}
